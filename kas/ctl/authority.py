"""The CA by which clients of kas verify it, where kas' own certificate is used."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from kas.ctl.common import Ctl
from kas.state import pki
from kas.state.directory import StateDirectory
from kas.state.running import Running
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.util.files import in_words

__all__ = ["NoAuthority", "given_authority", "own_authority"]


class NoAuthority(TunnelError):
    """The CA that kas made is not the one that a client needs; says why."""


def given_authority(file: Path) -> bytes:
    """
    A CA that an option names.

    :raises ConfigurationError: there is none in the file.
    """
    try:
        data = file.read_bytes()
        x509.load_pem_x509_certificate(data)
    except (OSError, ValueError) as error:
        message = f"{file}: is not a PEM certificate ({in_words(error)})"
        raise ConfigurationError([message]) from None
    return data


def own_authority(
    ctl: Ctl,
    state: StateDirectory,
    what: str,
    kas: Sequence[Running],
    host: str | None,
) -> bytes:
    """
    The CA that kas made, for clients of a listener.

    :param what: that listener, as `kas.state.running` names them.
    :param kas: those that run.
    :param host: by which clients reach it; None: as it listens.
    :raises NoAuthority: another certificate is used there, or it is not for *host*.
    """
    # The same as kas does on its first start, should that be still to come.
    files = pki.DevelopmentPki(state, socket.gethostname(), ctl.now).ensure()
    if files.ca_file is None:
        raise NoAuthority(f"{files.certificate_file} is not signed by a CA of kas")
    ours = files.certificate_file.resolve()
    for one in kas:
        found = one.find(what)
        shown = None if found is None else found.certificate_file
        if shown is not None and shown.resolve() != ours:
            raise NoAuthority(f"kas uses {shown} there")
    certificate = x509.load_pem_x509_certificate(ours.read_bytes())
    if host is not None and not pki.is_for(certificate, host):
        raise NoAuthority(
            f"the certificate that kas made is for "
            f"{', '.join(pki.names_of(certificate))}; if kas itself answers there, add "
            f"{host!r} to development_certificate_names in its configuration file and "
            "restart it"
        )
    return files.ca_file.read_bytes()
