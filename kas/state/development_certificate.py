"""Development certificate of a running kas: creation, renewal and monitoring."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from twisted.logger import Logger

from kas.state import pki
from kas.state.directory import StateDirectory
from tunnel.errors import ConfigurationError
from tunnel.program.parts import Part, Phase
from tunnel.program.runtime import Runtime
from tunnel.toolkit.repeated import Repeated

__all__ = ["DevelopmentCertificate"]

#: Seconds between two checks whether the certificate is due for renewal.  Renewal is
#: due after two thirds of the certificate's lifetime, so a delay of hours is harmless.
RENEWAL_INTERVAL = 3600.0

ONE_DAY = 24 * 3600.0


class DevelopmentCertificate(Part):
    """
    Certificate of the development CA, which kas creates on first use.

    :param names: host names and addresses for the certificate.
    """

    _log = Logger()
    name = "the development certificate"

    def __init__(
        self, state: StateDirectory, runtime: Runtime, names: Sequence[str]
    ) -> None:
        self._state = state
        self._runtime = runtime
        self._names = names
        self._renewal = Repeated(
            runtime.reactor, "renewing the development certificate", self._renew
        )
        self._warned_at: float | None = None

    def files(self) -> pki.ServerFiles:
        """Return the current files; create or renew them first if necessary."""
        now, host = self._runtime.now, socket.gethostname()
        return pki.ensure(self._state, now, host, self._names)

    def certificate(self) -> tuple[Path, Path]:
        """Return the paths of the certificate and its key, which never change."""
        files = self.files()
        if not self._renewal.running:
            self._log.info(
                "development certificate {file}, pin {pin}",
                file=str(files.certificate_file),
                pin=files.pin,
            )
            self._warn_of_expiry(files)
            self._renewal.start(RENEWAL_INTERVAL)
        return files.certificate_file, files.key_file

    def _renew(self) -> None:
        # Do not notify the listeners, because they read the new file by themselves.
        try:
            files = self.files()
        except (ConfigurationError, OSError):
            self._log.failure("renewing the development certificate failed")
        else:
            self._warn_of_expiry(files)

    def _warn_of_expiry(self, files: pki.ServerFiles) -> None:
        """Warn once a day while kas cannot renew the certificate."""
        now = self._runtime.reactor.seconds()
        warned = self._warned_at
        if files.problem is None or (warned is not None and now - warned < ONE_DAY):
            return
        self._warned_at = now
        self._log.warn(
            "{problem}; the certificate expires on {day}",
            problem=files.problem,
            day=f"{files.expires_at:%Y-%m-%d}",
        )

    async def drain(self, phase: Phase) -> None:
        """Stop renewing the certificate."""
        if phase is Phase.READINESS:
            self._renewal.stop()
