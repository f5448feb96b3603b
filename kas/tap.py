"""``twistd kas``: the options, and the service that they make."""

from __future__ import annotations

import os
import sys

from twisted.application.service import IService
from twisted.python import usage

from kas.config import KasConfiguration, read_configuration_file
from kas.service import KasService, prepare_modules
from kas.state import StateDirectory, locate
from tunnel.errors import ConfigurationError
from tunnel.hosting import Prepared
from tunnel.tuning import tune_allocator


class Options(usage.Options):
    """What can be said on the command line."""

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

    def postOptions(self) -> None:
        """Read everything that can be wrong, and report all of it at once."""
        if self["log-format"] not in ("auto", "json", "text"):
            raise usage.UsageError(
                f"--log-format {self['log-format']}: choose auto, json or text"
            )
        try:
            self.configuration = read_configuration_file(self["configuration-file"])
            self.modules = prepare_modules(self.configuration)
        except ConfigurationError as error:
            raise usage.UsageError("\n".join(error.problems)) from None
        if self["check"]:
            names = ", ".join(module.name for module in self.modules) or "none"
            print(f"the configuration is usable; modules: {names}")
            sys.exit(0)


def makeService(options: Options) -> IService:
    """The service for `twistd`."""
    from twisted.internet import reactor

    tune_allocator()
    try:
        state = StateDirectory.open(locate(options["state-directory"], os.environ))
    except ConfigurationError as error:
        raise usage.UsageError("\n".join(error.problems)) from None
    service = KasService(options.configuration, options.modules, state, reactor)
    service.log_as_told(
        options.parent or {},
        options["log-format"],
        options.configuration.observability.logging.level,
    )
    return service
