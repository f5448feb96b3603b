"""Whether several workers can listen where the configuration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kas.config.loading import load
from kas.workers.sharing import check_listeners
from tunnel.errors import ConfigurationError

SSL = "agent: {listen: {endpoint: 'ssl:8150:privateKey=a:certKey=b'}}\n"
PRIVATE = (
    "redis: {{server: {{address: 'localhost:6379'}}}}\n"
    "private_api:\n"
    "  listen: {{address: '{address}', authentication_secret_file: secret}}\n"
)


def _check(folder: Path, text: str) -> str:
    (folder / "secret").write_text("c2VjcmV0" * 6)
    (folder / "secret").chmod(0o600)
    file = folder / "kas.yaml"
    file.write_text(text)
    configuration, modules = load(file)
    try:
        check_listeners(configuration, modules, file)
    except ConfigurationError as error:
        return "\n".join(error.problems).replace(f"{file}:", "")
    return ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SSL,
            (
                "1:18: agent.listen.endpoint: with several workers this must be one of "
                "tcp, tcp4, tcp6, unix, systemd; or set 'workers: 1'"
            ),
        ),
        (SSL.replace("ssl:", "tcp:").replace(":privateKey=a:certKey=b", ""), ""),
        (SSL.replace("agent", "observability"), ""),
        (PRIVATE.format(address="127.0.0.1:8155"), ""),
        (
            PRIVATE.format(address="127.0.0.1:65534"),
            (
                "private_api.listen.address: the 3 ports from 65534 do not all exist; "
                "choose a smaller port"
            ),
        ),
    ],
)
def test_listeners(tmp_path: Path, text: str, said: str) -> None:
    assert _check(tmp_path, f"{text}workers: 3\n") == said
    assert _check(tmp_path, text) == ""
