"""What is wrong with a configuration file of kas."""

from __future__ import annotations

from kas.config.schema import read_configuration
from tunnel.config import Remark
from tunnel.errors import ConfigurationError


def problems(
    text: str, file: str = "kas.yaml", remark: Remark | None = None
) -> list[str]:
    """Everything that reading *text* complains about; nothing: it is usable."""
    try:
        read_configuration(text, file, remark)
    except ConfigurationError as error:
        return list(error.problems)
    return []
