"""What a worker is told, and what follows for its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from kas.config.schema import KasConfiguration, read_configuration
from kas.config.workers import MAX_WORKERS, available_cores, parse_workers
from kas.workers.worker import VARIABLE, Worker
from tunnel.errors import ConfigurationError


def _configuration(tmp_path: Path, text: str) -> KasConfiguration:
    secret = tmp_path / "secret"
    secret.write_text("A" * 43 + "=")
    return read_configuration(text.replace("SECRET", str(secret)), "kas.yaml")


PRIVATE = """\
private_api:
  listen: {address: "10.0.0.1:8155", authentication_secret_file: SECRET}
redis: {server: {address: "127.0.0.1:6379"}}
"""


def test_what_it_is_told(tmp_path: Path) -> None:
    worker = Worker(
        number=2,
        urls=("unix:///a", "unix:///b", "unix:///c"),
        sockets={"agent.listen": 5},
        secret="/secret",
        shares_store=True,
    )
    assert Worker.from_environment({VARIABLE: worker.to_variable()}) == worker
    assert worker.sibling_urls == ("unix:///a", "unix:///c")
    assert Worker.from_environment({}) is None


@pytest.mark.parametrize("said", ["", "1", "{}", '{"number": 1, "urls": [], "x": 1}'])
def test_what_others_set(said: str) -> None:
    with pytest.raises(ConfigurationError, match="only kas itself may set it"):
        Worker.from_environment({VARIABLE: said})


def test_without_redis_it_listens_on_its_socket(tmp_path: Path) -> None:
    """Whatever is said about the private API is for other machines."""
    secret = tmp_path / "other"
    secret.write_text("A" * 43 + "=")
    worker = Worker(number=2, urls=("unix:///a", "unix:///b"), secret=str(secret))
    configuration, environ = worker.configure(
        KasConfiguration(), {"OWN_PRIVATE_API_URL": "tls://x", "HOME": "/"}
    )
    assert configuration.private_api is not None
    listen = configuration.private_api.listen
    assert (listen.network, listen.address) == ("unix", "/b")
    assert listen.authentication_secret_file == secret
    assert environ == {"HOME": "/"}


def test_with_redis_each_has_a_port(tmp_path: Path) -> None:
    configuration = _configuration(tmp_path, PRIVATE)
    environ = {
        "OWN_PRIVATE_API_URL": "grpcs://[fd00::1]:9000",
        "OWN_PRIVATE_API_PORT": "443",
    }
    found = []
    for number in (1, 3):
        mine, its = Worker(number=number, urls=("", "", "")).configure(
            configuration, environ
        )
        assert mine.private_api is not None
        found.append((mine.private_api.listen.address, *its.values()))
    assert found == [
        ("10.0.0.1:8155", "grpcs://[fd00::1]:9000", "443"),
        ("10.0.0.1:8157", "tls://[fd00::1]:9002", "445"),
    ]


@pytest.mark.parametrize(
    ("address", "why"),
    [("10.0.0.1:0", "not port 0"), ("10.0.0.1:65535", "do not all exist")],
)
def test_a_port_that_cannot_be(tmp_path: Path, address: str, why: str) -> None:
    configuration = _configuration(tmp_path, PRIVATE.replace("10.0.0.1:8155", address))
    with pytest.raises(ConfigurationError, match=why):
        Worker(number=2, urls=("", "")).configure(configuration, {})


def test_rates_are_those_of_all_together() -> None:
    configuration, _ = Worker(number=1, urls=("a", "b")).configure(
        KasConfiguration(), {}
    )
    whole = KasConfiguration().gitaly.global_api_rate_limit
    part = configuration.gitaly.global_api_rate_limit
    assert part.refill_rate_per_second == whole.refill_rate_per_second / 2
    assert part.bucket_size == whole.bucket_size // 2


def test_how_many() -> None:
    assert parse_workers("4") == 4
    assert parse_workers("auto") == available_cores() >= 1
    for text in ("0", "65", "-1", "", "four", "1.5", "9" * 30):
        with pytest.raises(ValueError):
            parse_workers(text)
    assert parse_workers(str(MAX_WORKERS)) == MAX_WORKERS


@pytest.mark.parametrize(
    ("said", "most"),
    [("150000 100000\n", 2), ("50000 100000\n", 1), ("max 100000", 64)],
)
def test_cores_of_a_container(tmp_path: Path, said: str, most: int) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text(said)
    everything = available_cores(tmp_path / "none")
    assert available_cores(limit) == min(everything, most)


def test_in_the_file(tmp_path: Path) -> None:
    assert _configuration(tmp_path, "workers: 3\n").workers == 3
    with pytest.raises(ConfigurationError, match=r"kas.yaml:1:10: .*1 to 64"):
        _configuration(tmp_path, "workers: 100\n")
