"""Plugin ``twistd kas``: its options, and the service that is made from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.application.service import IService

from kas.missing import not_installed
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared
from tunnel.program.options import ProgramOptions
from tunnel.program.startup import obey_signals, refuse
from tunnel.program.tuning import allow_many_files, keep_time, tune_allocator

try:
    from kas.audit.log import file_problems
    from kas.config.loading import load
    from kas.config.schema import KasConfiguration
    from kas.config.workers import EXPECTED, parse_workers
    from kas.service import KasService
    from kas.state.directory import StateDirectory, locate
    from kas.workers.folder import check_path
    from kas.workers.part import WorkerCommand
    from kas.workers.service import WorkerService
    from kas.workers.sharing import check_listeners
    from kas.workers.supervisor import Supervisor
    from kas.workers.worker import Worker
except ModuleNotFoundError as error:
    not_installed("kas", error)


class Options(ProgramOptions):
    """Options of ``twistd kas`` on the command line."""

    synopsis = "[options]"
    longdesc = (
        "The server to which agents in Kubernetes clusters connect, and through "
        "which kubectl and other clients reach those clusters. Without a "
        "configuration file it runs alone: certificates and the list of agents and "
        "users are in the state directory. Add both with kasctl."
    )

    optParameters = [
        [
            "configuration-file",
            None,
            None,
            "YAML file; without it, all settings have their defaults.",
        ],
        [
            "state-directory",
            None,
            None,
            "Directory for certificates and identities [default: $STATE_DIRECTORY, "
            "$XDG_STATE_HOME/kas or ~/.local/state/kas].",
        ],
        [
            "log-format",
            None,
            "auto",
            "text, json, or auto: text on a terminal, JSON lines elsewhere.",
        ],
        [
            "workers",
            None,
            None,
            "Number of processes that share the work; auto: one for each core. "
            "[default: from the configuration file, or 1]",
        ],
    ]
    optFlags = [
        ["check", None, "Check the configuration, report problems, and exit."],
    ]

    configuration: KasConfiguration
    modules: list[Prepared]
    #: Remarks about the configuration file that are not errors.
    remarks: Sequence[str]

    def usable(self) -> str:
        """Return the message of ``--check`` for a valid configuration."""
        return f"the configuration is valid; workers: {self.configuration.workers}"

    def steps(self) -> Sequence[Callable[[], None]]:
        """
        Return the steps that check the configuration file and the state directory.
        """
        return self._load, self._look_at_state

    def _load(self) -> None:
        remarks: list[str] = []
        worker = Worker.from_environment(os.environ)
        self.configuration, self.modules = load(
            self["configuration-file"],
            remark=remarks.append,
            copy=worker.configuration if worker is not None else None,
        )
        self.remarks = tuple(dict.fromkeys(remarks))
        if self["workers"] is not None:
            try:
                workers = parse_workers(self["workers"])
            except ValueError:
                said = self["workers"]
                raise ConfigurationError(
                    [f"--workers: expected {EXPECTED}, got '{said}'"]
                ) from None
            self.configuration = attrs.evolve(self.configuration, workers=workers)
        if worker is None:
            check_listeners(
                self.configuration, self.modules, self["configuration-file"]
            )
            audit = self.configuration.observability.audit
            if problems := file_problems(audit, self["configuration-file"]):
                raise ConfigurationError(problems)

    def _look_at_state(self) -> None:
        # Only a start creates the directory, but an existing directory can be checked
        # before.
        path = locate(self["state-directory"], os.environ)
        if os.path.exists(path):
            StateDirectory.open(path, create=False)
        # If the configuration was not read, let its problems be reported first.
        configuration = getattr(self, "configuration", None)
        if configuration is not None:
            check_path(path, configuration.workers)


def makeService(options: Options) -> IService:
    from twisted.internet import reactor

    tune_allocator()
    few_files = allow_many_files()
    remarks = options.remarks if few_files is None else (*options.remarks, few_files)
    keep_time(reactor)
    configuration = options.configuration
    service: KasService | Supervisor
    try:
        state = StateDirectory.open(locate(options["state-directory"], os.environ))
        worker = Worker.from_environment(os.environ)
        if worker is None and configuration.workers > 1:
            service = Supervisor(
                configuration,
                options.modules,
                state,
                WorkerCommand(
                    _for_workers(options, state),
                    _reactor_option(options),
                    _absolute(options["configuration-file"]),
                ),
                reactor,
                remarks=remarks,
            )
        elif worker is None:
            service = KasService(
                configuration, options.modules, state, reactor, remarks=remarks
            )
        else:
            service = WorkerService(
                worker, configuration, options.modules, state, reactor
            )
            # Leave the process group, because signals of a terminal must reach only the
            # supervisor.
            os.setpgid(0, 0)
        service.log_as_told(
            options.parent or {},
            options["log-format"],
            configuration.observability.logging.level,
        )
    except ConfigurationError as error:
        refuse(error.problems)
    obey_signals(service, reactor)
    return service


def _for_workers(options: Options, state: StateDirectory) -> list[str]:
    """Return the options for starting each worker."""
    arguments = [f"--state-directory={state.path}"]
    file = _absolute(options["configuration-file"])
    if file is not None:
        arguments.append(f"--configuration-file={file}")
    return arguments


def _absolute(file: str | None) -> Path | None:
    """Return the absolute path of *file*, because a daemon changes its directory."""
    return None if file is None else Path(os.path.abspath(file))


def _reactor_option(options: Options) -> list[str]:
    twisted: Mapping[str, Any] = options.parent or {}
    name = twisted.get("reactor")
    return [] if name in (None, "default") else [f"--reactor={name}"]
