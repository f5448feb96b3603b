"""The state machine of the h2 library, set up as our end of a connection."""

from __future__ import annotations

from collections.abc import Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, Event
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame
from twisted.logger import Logger

from kas.api.limits import Limits

__all__ = ["attempt", "make_machine"]

_log = Logger()


class _Machine(H2Connection):
    """
    Goes on after a GOAWAY of the client.

    h2 takes nothing and sends nothing from there on; yet what the client says is that
    it wants no streams of ours, and that it will open none: those that run, run on
    (RFC 9113, 6.8).
    """

    def _receive_goaway_frame(
        self, frame: GoAwayFrame
    ) -> tuple[list[Frame], list[Event]]:
        event = ConnectionTerminated()
        event.error_code = frame.error_code
        event.last_stream_id = frame.last_stream_id
        return [], [event]


def make_machine(limits: Limits) -> H2Connection:
    """The machine of one connection, which has said nothing yet."""
    machine = _Machine(H2Configuration(client_side=False, header_encoding=None))
    machine.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_list,
            SettingCodes.MAX_FRAME_SIZE: limits.frame,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window,
        },
    )
    machine.decoder.max_header_list_size = limits.header_list
    return machine


def attempt(action: Callable[..., object], *arguments: object) -> None:
    """What h2 does not allow any more: the client closed the stream meanwhile."""
    try:
        action(*arguments)
    except ProtocolError as error:
        _log.debug("not sent: {error!r}", error=error)
