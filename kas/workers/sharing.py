"""Check whether several workers can share the configured listeners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kas.config.loading import listeners
from kas.config.schema import KasConfiguration
from kas.workers.worker import private_listen
from tunnel.config import place_of
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import Prepared

__all__ = ["OBSERVABILITY", "PRIVATE_API", "check_listeners"]

#: Sections whose listeners have separate ports in each worker.
OBSERVABILITY, PRIVATE_API = "observability.listen", "private_api.listen"

#: Types of endpoints whose sockets can be passed to other processes.
_SHARED = ("tcp", "tcp4", "tcp6", "unix", "systemd")


def check_listeners(
    configuration: KasConfiguration,
    modules: Sequence[Prepared],
    file: str | Path | None,
) -> None:
    """
    Check whether several workers can share each listener, before any listener is
    opened.

    :param file: the configuration file, for the positions of problems.
    :raises ConfigurationError: if several workers cannot share one of the listeners.
    """
    if configuration.workers == 1:
        return
    problems = []
    for section, listen in listeners(configuration, modules):
        if section in (OBSERVABILITY, PRIVATE_API):
            continue
        if listen.endpoint and listen.endpoint.partition(":")[0] not in _SHARED:
            key = f"{section}.endpoint"
            where = "" if file is None else f"{place_of(file, key)}: "
            problems.append(
                f"{where}{key}: with several workers this must be one of "
                f"{', '.join(_SHARED)}; or set 'workers: 1'"
            )
    private_api = configuration.private_api
    if configuration.redis is not None and private_api is not None:
        try:
            private_listen(private_api.listen, configuration.workers)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
