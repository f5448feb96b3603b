"""What is wrong with a configuration file of kas."""

from __future__ import annotations

import pytest

from kas.config.schema import read_configuration
from tunnel.errors import ConfigurationError


def problems(text: str, file: str = "kas.yaml") -> list[str]:
    """Everything that reading *text* complains about."""
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(text, file)
    return list(caught.value.problems)
