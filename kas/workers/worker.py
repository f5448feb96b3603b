"""
Settings that a worker gets from its supervisor, and their effects on its configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import attrs

from kas.config.gitaly import GlobalGitalyRate, ServerGitalyRate
from kas.config.gitlab import ApiRateLimit
from kas.config.own_address import parse_peer_url
from kas.config.schema import KasConfiguration, PrivateApi, PrivateApiListen
from tunnel.config import Listen
from tunnel.errors import ConfigurationError

__all__ = ["VARIABLE", "Worker", "private_listen"]

#: The environment variable that makes a process a worker. It contains no secrets.
VARIABLE = "TXKAS_WORKER"

#: Environment variables with a different value for each worker of a kas with Redis.
_URL, _PORT = "OWN_PRIVATE_API_URL", "OWN_PRIVATE_API_PORT"


_R = TypeVar("_R", ApiRateLimit, GlobalGitalyRate, ServerGitalyRate)


@attrs.frozen(kw_only=True)
class Worker:
    """
    Settings of one worker.

    :ivar number: the number of the worker, beginning with 1.
    :ivar urls: the addresses of the workers for other kas, in the order of their
        numbers.
    :ivar sockets: the open listening sockets, by the section that configures them.
    :ivar secret: the file of the secret for authentication between workers without
        Redis; empty if kas uses Redis, and workers authenticate each other as
        other kas do.
    :ivar configuration: a copy of the configuration file that was made when kas
        started; empty if kas has no file.
    :ivar shares_store: whether the supervisor locks the file of the modules' stores
        against other kas, so that all workers use it.
    """

    number: int
    urls: tuple[str, ...] = ()
    sockets: Mapping[str, int] = attrs.Factory(dict)
    secret: str = ""
    configuration: str = ""
    shares_store: bool = False

    def to_variable(self) -> str:
        """Return the value of `VARIABLE`."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Worker | None:
        """
        Read the settings from the environment, and return them; None if this process is
        not a worker.
        """
        text = environ.get(VARIABLE)
        if text is None:
            return None
        try:
            said = json.loads(text)
            return cls(**{**said, "urls": tuple(said["urls"])})
        except (ValueError, TypeError, KeyError):
            raise ConfigurationError(
                [f"{VARIABLE} is set, but only kas itself may set it: remove it"]
            ) from None

    @property
    def sibling_urls(self) -> tuple[str, ...]:
        """Addresses of the other workers, for this worker."""
        return tuple(
            url for number, url in enumerate(self.urls, 1) if number != self.number
        )

    def configure(
        self, configuration: KasConfiguration, environ: Mapping[str, str]
    ) -> tuple[KasConfiguration, Mapping[str, str]]:
        """
        Return the configuration and environment of this worker.

        Rates of requests to other servers apply to kas as a whole: each worker has its
        share of these rates.
        """
        configuration = self._with_its_part(configuration)
        if self.secret:
            listen = PrivateApiListen(
                network="unix",
                address=self.urls[self.number - 1].removeprefix("unix://"),
                authentication_secret_file=Path(self.secret),
            )
            private = PrivateApi(listen=listen)
            return attrs.evolve(configuration, private_api=private), {
                name: value
                for name, value in environ.items()
                if not name.startswith("OWN_PRIVATE_API_")
            }
        if configuration.private_api is None:
            return configuration, environ
        listen = private_listen(configuration.private_api.listen, self.number)
        changed = dict(environ)
        if port := environ.get(_PORT):
            changed[_PORT] = str(int(port) + self.number - 1)
        if url := environ.get(_URL):
            changed[_URL] = _url_of(url, self.number)
        private = PrivateApi(listen=listen)
        return attrs.evolve(configuration, private_api=private), changed

    def _with_its_part(self, configuration: KasConfiguration) -> KasConfiguration:
        gitaly, gitlab = configuration.gitaly, configuration.gitlab
        changed = attrs.evolve(
            gitaly,
            global_api_rate_limit=self._part(gitaly.global_api_rate_limit),
            per_server_api_rate_limit=self._part(gitaly.per_server_api_rate_limit),
        )
        if gitlab is not None:
            gitlab = attrs.evolve(
                gitlab, api_rate_limit=self._part(gitlab.api_rate_limit)
            )
        return attrs.evolve(configuration, gitaly=changed, gitlab=gitlab)

    def _part(self, rate: _R) -> _R:
        workers = max(1, len(self.urls))
        return attrs.evolve(
            rate,
            refill_rate_per_second=rate.refill_rate_per_second / workers,
            bucket_size=max(1, rate.bucket_size // workers),
        )


def private_listen(listen: PrivateApiListen, number: int) -> PrivateApiListen:
    """
    Return the listener of worker *number* for other kas.

    :raises ConfigurationError: if no port exists with the number that this worker
        needs.
    """
    if number == 1:
        return listen
    if listen.network == "unix":
        return attrs.evolve(listen, address=f"{listen.address}.{number}")
    return attrs.evolve(listen, address=_shifted(listen, number - 1))


def _shifted(listen: Listen, more: int) -> str:
    host, _, port = listen.address.rpartition(":")
    if listen.endpoint or not int(port):
        raise ConfigurationError(
            [
                "private_api.listen: with several workers, each listens for other "
                "kas on its own port, counted from the port in 'address': use such "
                "an address, and not port 0 or an endpoint"
            ]
        )
    if int(port) + more > 65535:
        raise ConfigurationError(
            [
                f"private_api.listen.address: the {more + 1} ports from {port} do "
                "not all exist; choose a smaller port"
            ]
        )
    return f"{host}:{int(port) + more}"


def _url_of(url: str, number: int) -> str:
    if number == 1:
        return url
    address = parse_peer_url(url)
    if address.scheme == "unix":
        return f"unix://{address.path}.{number}"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{address.scheme}://{host}:{address.port + number - 1}"
