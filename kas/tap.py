"""``twistd kas``: the options, and the service that they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from twisted.application.service import IService

from kas.missing import not_installed
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared
from tunnel.program.options import ProgramOptions
from tunnel.program.startup import obey_signals, refuse
from tunnel.program.tuning import keep_time, tune_allocator

try:
    from kas.config.loading import load
    from kas.config.schema import KasConfiguration
    from kas.service import KasService
    from kas.state.directory import StateDirectory, locate
except ModuleNotFoundError as error:
    not_installed("kas", error)


class Options(ProgramOptions):
    """What can be said on the command line."""

    usable = "the configuration is usable"
    synopsis = "[options]"
    longdesc = (
        "The server that agents in Kubernetes clusters connect to, and through which "
        "kubectl and others reach those clusters. Without a configuration file it "
        "runs alone: certificates and the list of agents and users are in the state "
        "directory. Add both with kasctl."
    )

    optParameters = [
        [
            "configuration-file",
            None,
            None,
            "YAML file; without one, everything has its default.",
        ],
        [
            "state-directory",
            None,
            None,
            "Where certificates and identities are kept [default: $STATE_DIRECTORY, "
            "$XDG_STATE_HOME/kas or ~/.local/state/kas].",
        ],
        [
            "log-format",
            None,
            "auto",
            "text, json, or auto: text on a terminal, JSON lines elsewhere.",
        ],
    ]
    optFlags = [
        ["check", None, "Check the configuration, say what is wrong with it, and end."],
    ]

    configuration: KasConfiguration
    modules: list[Prepared]
    #: What is to be said of the file, though it is no problem.
    remarks: Sequence[str]

    def steps(self) -> Sequence[Callable[[], None]]:
        """The configuration file, and the state directory."""
        return self._load, self._look_at_state

    def _load(self) -> None:
        remarks: list[str] = []
        self.configuration, self.modules = load(
            self["configuration-file"], remark=remarks.append
        )
        self.remarks = tuple(dict.fromkeys(remarks))

    def _look_at_state(self) -> None:
        # Only a start makes it; one that is there can be looked at now.
        path = locate(self["state-directory"], os.environ)
        if os.path.exists(path):
            StateDirectory.open(path, create=False)


def makeService(options: Options) -> IService:
    from twisted.internet import reactor

    tune_allocator()
    keep_time(reactor)
    try:
        state = StateDirectory.open(locate(options["state-directory"], os.environ))
        service = KasService(
            options.configuration,
            options.modules,
            state,
            reactor,
            remarks=options.remarks,
        )
        service.log_as_told(
            options.parent or {},
            options["log-format"],
            options.configuration.observability.logging.level,
        )
    except ConfigurationError as error:
        refuse(error.problems)
    obey_signals(service, reactor)
    return service
