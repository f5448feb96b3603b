"""The admission webhook of one agentk."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from agentk.config import AdmissionSettings
from agentk.policy.admission.registration import PATH, Registration, WebhookState
from agentk.policy.admission.reviews import alternatives, response
from agentk.policy.admission.server import make_factory
from agentk.policy.guard import PolicyGuard
from tunnel.config import Listen
from tunnel.errors import CallError, ConfigurationError
from tunnel.program.listening import Listening
from tunnel.toolkit.files import replace_file
from tunnel.toolkit.repeated import Repeated

__all__ = ["AdmissionWebhook"]

#: Seconds between two looks at the certificates and the registration.
LOOK_SECONDS: Final = 60.0


@attrs.define(eq=False)
class AdmissionWebhook:
    """
    Listener that the API server asks about requests that came through agentk.

    :param changed: called when `problem` has changed.
    :ivar problem: why the API server may not reach the webhook; empty if it can.
    """

    settings: AdmissionSettings
    guard: PolicyGuard
    registration: Registration
    listening: Listening
    clock: IReactorTime
    now: Callable[[], float]
    changed: Callable[[], object] = lambda: None
    problem: str = "the admission webhook is not registered yet"
    _state: WebhookState = attrs.field(factory=WebhookState)
    _presented: bytes = b""
    _folder: TemporaryDirectory[str] | None = None
    _looks: Repeated | None = None
    _is_open: bool = False
    _lock: DeferredLock = attrs.field(factory=DeferredLock, init=False)
    _log = Logger()

    async def start(self) -> None:
        """
        Listen, and register the webhook; if the cluster does not answer, try again
        later.
        """
        self._folder = TemporaryDirectory(prefix="agentk-admission-")
        self._looks = Repeated(self.clock, "renewing the webhook", self.look)
        await self.look()
        self._looks.start(LOOK_SECONDS)

    def stop(self) -> None:
        """Stop looking; the port closes with the others."""
        looks, self._looks = self._looks, None
        if looks is not None:
            looks.stop()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    async def look(self) -> None:
        """Renew certificates that are due, and the registration."""
        if self._folder is not None:
            await self._lock.run(lambda: Deferred.fromCoroutine(self._renew()))

    async def _renew(self) -> None:
        try:
            now = datetime.fromtimestamp(self.now(), UTC)
            self._state = await self.registration.renew(now)
            self._present()
            if not self._is_open:
                await self._open()
                self._is_open = True
            # Not before this process can answer.
            await self.registration.register(self._state)
        except CallError as error:
            self._report(f"the admission webhook: {error.message}")
        except ConfigurationError as error:
            self._report(f"the admission webhook: {error}")
        else:
            self._report("")

    @property
    def _file(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "webhook.pem"

    def _present(self) -> None:
        """Write certificate and key into one file, which changes as a whole."""
        current = self._state.certificates.current
        assert current is not None
        data = current.certificate + current.key
        if data == self._presented:
            return
        replace_file(self._file, data, durable=False)
        self._presented = data

    async def _open(self) -> None:
        await self.listening.listen(
            Listen(
                address=self.settings.address,
                certificate_file=self._file,
                key_file=self._file,
            ),
            make_factory(self._path, self.answer, self.clock),
            what="admission reviews",
            setting="policy.admission.address",
            alpn=("http/1.1",),
            minimum=ssl.TLSVersion.TLSv1_2,
        )

    def _path(self) -> str:
        return f"{PATH}{self._state.token}" if self._state.token else ""

    def answer(self, review: Any) -> bytes:
        """
        Return the response to a review.

        :raises ValueError: it is not a review.
        """
        uid, found = alternatives(review, self.guard.modules)
        return response(uid, self.guard.admit(found))

    def _report(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._log.error("{problem}", problem=problem)
        else:
            self._log.info(
                "the API server asks agentk about requests that come through it"
            )
        self.changed()
