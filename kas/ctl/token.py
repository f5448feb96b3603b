"""``kasctl token``: tokens for the external API, for curl and for tests."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import click

from kas.api.auth import AUDIENCE
from kas.ctl.common import DURATION, Ctl, command, issuer_option, secret_option
from kas.identity.jwt import MAX_LIFETIME, read_secret, sign
from tunnel.errors import ConfigurationError

__all__ = ["declare"]


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    command(group, "token")(_token)


@secret_option(required=True)
@issuer_option
@click.option(
    "--lifetime",
    type=DURATION,
    default="60s",
    show_default=True,
    help="Lifetime of the token; at most an hour.",
)
def _token(ctl: Ctl, secret_file: Path, issuer: str, lifetime: timedelta) -> None:
    """Print a token for calls of the external API."""
    seconds = lifetime.total_seconds()
    if not 0 < seconds <= MAX_LIFETIME:
        raise ConfigurationError(
            [f"--lifetime must be more than 0s and at most {MAX_LIFETIME / 3600:g}h"]
        )
    try:
        secret = read_secret(secret_file)
    except ValueError as error:
        raise ConfigurationError([str(error)]) from None
    token = sign(
        secret, issuer=issuer, audience=AUDIENCE, now=time.time(), lifetime=seconds
    )
    ctl.result({"token": token}, token)
