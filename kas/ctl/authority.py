"""CA certificates for clients of kas, if kas uses a certificate of its own CA."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import click
from cryptography import x509

from kas.ctl.common import Ctl
from kas.state import pki
from kas.state.directory import StateDirectory
from kas.state.running import Running
from tunnel.errors import ConfigurationError, TunnelError
from tunnel.toolkit.files import in_words

__all__ = [
    "NoAuthority",
    "WrongName",
    "given_authority",
    "own_authority",
    "refuse_wrong_name",
    "system_cas_option",
]

#: Option that skips the check of the name against kas' certificate.
system_cas_option = click.option(
    "--system-cas",
    is_flag=True,
    help="Another server answers there, and clients trust the CA of its certificate "
    "already.",
)


class NoAuthority(TunnelError):
    """
    Error if kas has no CA certificate that a client could use; the text names the
    reason.
    """


class WrongName(NoAuthority):
    """
    Error if kas' certificate is not valid for a name, so that clients of kas would
    reject it.
    """


def refuse_wrong_name(option: str, error: NoAuthority) -> None:
    """
    Refuse a name that is probably mistyped, before a token is made for it.

    :raises ConfigurationError: with advice for the user.
    """
    if isinstance(error, WrongName):
        raise ConfigurationError(
            [
                f"{option}: {error}.  If another server answers there, name its CA "
                "with --ca-file FILE, or pass --system-cas if clients already trust "
                "it.  No token was made"
            ]
        )


def given_authority(file: Path) -> bytes:
    """
    Return the CA certificate in a file that an option names.

    :raises ConfigurationError: if the file contains no CA.
    """
    try:
        data = file.read_bytes()
        x509.load_pem_x509_certificate(data)
    except (OSError, ValueError) as error:
        message = f"{file} is not a PEM certificate ({in_words(error)})"
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
    Return kas' CA certificate, for clients of a listener.

    :param what: the listener, as named in `kas.state.running`.
    :param kas: the running kas.
    :param host: the clients' name for kas; None for kas' own address.
    :raises NoAuthority: if the listener uses another certificate, or its certificate is
        not valid for *host*.
    """
    # Create the certificate that kas would create on its first start.
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
        raise WrongName(
            f"the certificate that kas made is for "
            f"{', '.join(pki.names_of(certificate))}; if kas itself answers there, add "
            f"{host!r} to development_certificate_names in its configuration file and "
            "restart it"
        )
    return files.ca_file.read_bytes()
