"""A session: both sides keep the rules, or the peer does not, and what that costs."""

import pytest

from tests.tunnel.asserts import (
    assert_frames,
    assert_session_ends,
    assert_stream_reset,
)
from tests.tunnel.hostile import HOSTILE
from tests.tunnel.wire.helpers import deliver, frame, greeted, opened
from tunnel.errors import ErrorCode, SessionClosed, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.wire import events
from tunnel.wire.framing import FIN, IGNORABLE, FrameType
from tunnel.wire.limits import (
    FRAME_HEADER,
    KIB,
    MAX_CREDIT,
    MAX_HEADERS,
    MAX_HELLO,
    MAX_PAYLOAD,
    MAX_PING,
    MIN_WINDOW,
    SLICE,
    Limits,
    PeerLimits,
)
from tunnel.wire.outbox import JOINED, SMALL
from tunnel.wire.session import Session


def test_greeting_tells_both_sides_who_and_how_much() -> None:
    dialler = Session(dialler=True, limits=Limits(max_streams=5))
    listener = Session(dialler=False, limits=Limits(initial_window=200 * KIB))
    dialler.hello(pb.Hello(role="agent", credential=b"secret"))
    (hello,) = deliver(dialler, listener)
    assert isinstance(hello, events.HelloReceived)
    assert (hello.hello.role, hello.hello.credential) == ("agent", b"secret")
    assert not listener.ready
    listener.welcome(pb.Welcome(agent_id="7"))
    (welcome,) = deliver(listener, dialler)
    assert isinstance(welcome, events.WelcomeReceived)
    assert listener.peer.max_streams == 5
    assert dialler.peer.initial_window == 200 * KIB


def test_greeting_tells_the_largest_frame() -> None:
    """What a side says there it takes, though ours sends none that is so large."""
    limits = Limits(max_payload=100 * KIB)
    listener = Session(dialler=False, limits=limits)
    dialler = Session(dialler=True)
    dialler.hello(pb.Hello(role="agent"))
    deliver(dialler, listener)
    listener.welcome(pb.Welcome())
    (welcome,) = deliver(listener, dialler)
    assert isinstance(welcome, events.WelcomeReceived)
    assert welcome.welcome.limits.max_payload == 100 * KIB
    assert dialler.peer.max_payload == MAX_PAYLOAD
    largest = frame(FrameType.DATA, 1, b"x" * (100 * KIB))
    (_, received) = listener.receive_bytes(opened(1) + largest)
    assert received == events.DataReceived(1, b"x" * (100 * KIB))


def test_whether_there_is_something_to_send() -> None:
    """A control frame, bytes of a stream that have credit, or credit for the peer."""
    dialler, listener = greeted()

    def output() -> tuple[bool, bool]:
        return dialler.has_output, listener.has_output

    assert output() == (False, False)
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    assert output() == (True, False)
    deliver(dialler, listener)
    assert output() == (False, False)
    dialler.send_data(sid, b"x" * dialler.limits.initial_window)
    assert output() == (True, False)
    deliver(dialler, listener)
    assert output() == (False, False)
    dialler.send_data(sid, b"x")
    assert output() == (False, False)
    listener.consumed(sid, listener.limits.initial_window)
    assert output() == (False, True)
    deliver(listener, dialler)
    assert output() == (True, False)


def test_request_and_response() -> None:
    dialler, listener = greeted()
    sid = listener.open_stream(pb.Open(method="/s/M", metadata=b"head"), fin=True)
    assert sid == 2
    (event,) = deliver(listener, dialler)
    assert isinstance(event, events.StreamOpened)
    assert (event.stream_id, event.open.metadata, event.fin) == (2, b"head", True)
    dialler.send_headers(2, b"status")
    dialler.send_data(2, b"body")
    dialler.finish(2)
    assert deliver(dialler, listener) == [
        events.HeadersReceived(2, b"status"),
        events.DataReceived(2, b"body", True),
    ]
    assert dialler.open_streams == 0
    listener.consumed(2, 6)
    listener.consumed(2, 4)
    assert listener.open_streams == 0
    assert listener.buffered == 0


def test_half_close_leaves_the_other_direction_open() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    dialler.finish(sid)
    deliver(dialler, listener)
    listener.send_data(sid, b"still here")
    assert deliver(listener, dialler) == [events.DataReceived(sid, b"still here")]
    listener.finish(sid)
    assert deliver(listener, dialler) == [events.DataReceived(sid, b"", True)]


def test_sending_stops_at_the_credit_and_goes_on_with_more() -> None:
    limits = Limits(initial_window=MIN_WINDOW + 1)
    dialler, listener = greeted(listener_limits=limits)
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    total = 1_000_000
    dialler.send_data(sid, b"x" * total)
    first = deliver(dialler, listener)
    got = sum(len(e.data) for e in first if isinstance(e, events.DataReceived))
    assert got == listener.limits.initial_window
    assert not dialler.has_output
    listener.consumed(sid, got)
    deliver(listener, dialler)
    more = deliver(dialler, listener)
    assert sum(len(e.data) for e in more if isinstance(e, events.DataReceived)) == got
    # A header block goes when there is credit for exactly all of it.
    dialler.reset(sid, ErrorCode.CANCELLED)
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    dialler.send_data(sid, b"x" * (MIN_WINDOW - 99))
    dialler.send_headers(sid, b"h" * 100)
    deliver(dialler, listener)
    assert dialler.queued(sid) == 0


def test_owner_is_told_to_wait_and_to_go_on() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    assert not dialler.send_data(sid, b"x" * 1000)
    assert dialler.send_data(sid, b"x" * dialler.limits.send_high)
    assert dialler.take_drained() == []
    deliver(dialler, listener)
    assert dialler.take_drained() == [sid]


def test_streams_take_turns() -> None:
    dialler, listener = greeted()
    bulk = dialler.open_stream(pb.Open(method="/s/Bulk"))
    small = dialler.open_stream(pb.Open(method="/s/Small"))
    dialler.send_data(bulk, b"b" * 200_000)
    dialler.send_data(small, b"s" * 100)
    order = [
        e.stream_id
        for e in deliver(dialler, listener)
        if isinstance(e, events.DataReceived)
    ]
    assert order.index(small) <= 1


def test_control_frames_pass_waiting_data() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    dialler.send_data(sid, b"x" * 10_000)
    dialler.ping(99)
    happened = deliver(dialler, listener)
    kinds = [type(e) for e in happened]
    assert kinds == [events.StreamOpened, events.DataReceived]
    assert deliver(listener, dialler) == [events.Ponged(99)]


def test_header_block_is_never_cut() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    dialler.send_data(sid, b"x" * (256 * KIB - 10))
    dialler.send_headers(sid, b"h" * 100)
    happened = deliver(dialler, listener)
    assert not any(isinstance(e, events.HeadersReceived) for e in happened)
    listener.consumed(sid, 256 * KIB - 10)
    deliver(listener, dialler)
    assert deliver(dialler, listener) == [events.HeadersReceived(sid, b"h" * 100)]


def test_reset_drops_what_was_queued_and_frees_both_sides() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    dialler.send_data(sid, b"x" * 1000)
    dialler.reset(sid, ErrorCode.CANCELLED, "changed my mind")
    happened = deliver(dialler, listener)
    text = "changed my mind"
    assert_stream_reset(happened, ErrorCode.CANCELLED, text, stream=sid, by_peer=True)
    assert dialler.open_streams == listener.open_streams == 0


def test_what_was_queued_does_not_follow_the_reset() -> None:
    """Neither bytes nor the end of a stream that was given up are sent."""
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    deliver(dialler, listener)
    dialler.send_data(sid, b"x" * 1000)
    dialler.finish(sid)
    dialler.reset(sid, ErrorCode.CANCELLED)
    assert_frames(dialler, (FrameType.RESET, sid, pb.Reset(code=ErrorCode.CANCELLED)))
    assert not dialler.has_output


def test_sending_on_a_stream_that_the_peer_reset_is_harmless() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    deliver(dialler, listener)
    listener.reset(sid, ErrorCode.INTERNAL)
    deliver(listener, dialler)
    assert not dialler.send_data(sid, b"x")
    assert not dialler.send_headers(sid, b"x")
    dialler.finish(sid)
    dialler.consumed(sid, 5)
    assert_frames(dialler)


def test_sending_after_finish_is_our_own_mistake() -> None:
    dialler, _ = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    dialler.finish(sid)
    with pytest.raises(ValueError, match="finished"):
        dialler.send_data(sid, b"x")


def test_streams_beyond_the_peers_limit_are_not_opened() -> None:
    dialler, _ = greeted(listener_limits=Limits(max_streams=2))
    dialler.open_stream(pb.Open())
    dialler.open_stream(pb.Open())
    with pytest.raises(StreamReset) as caught:
        dialler.open_stream(pb.Open())
    text = "too many streams"
    assert_stream_reset([caught.value], ErrorCode.REFUSED, text, by_peer=False)


def test_going_away_refuses_new_streams_and_keeps_old_ones() -> None:
    dialler, listener = greeted()
    old = dialler.open_stream(pb.Open(method="/s/Old"))
    deliver(dialler, listener)
    late = dialler.open_stream(pb.Open(method="/s/Late"))
    listener.go_away(pb.GoAway(deadline_ms=5000, message="bye", elsewhere=True))
    happened = deliver(listener, dialler)
    assert isinstance(happened[0], events.GoAwayReceived)
    assert happened[1:] == [events.StreamEnded(late, ErrorCode.REFUSED, "bye")]
    with pytest.raises(SessionClosed) as caught:
        dialler.open_stream(pb.Open())
    text = "the peer accepts no new streams"
    assert_session_ends([caught.value], ErrorCode.SHUTDOWN, text)
    dialler.send_data(old, b"still")
    happened = deliver(dialler, listener)
    assert events.DataReceived(old, b"still") in happened
    assert not any(isinstance(e, events.StreamOpened) for e in happened)


def test_end_is_told_to_the_peer_with_its_reason() -> None:
    dialler, listener = greeted()
    dialler.open_stream(pb.Open())
    dialler.end(ErrorCode.SUPERSEDED, "newer")
    happened = deliver(dialler, listener)
    assert_session_ends(happened, ErrorCode.SUPERSEDED, "newer", by_peer=True)
    assert dialler.open_streams == 0
    assert dialler.receive_bytes(b"anything") == []


def test_a_stream_goes_on_by_another_connection() -> None:
    dialler, listener = greeted()
    resume = pb.Resume(resume_id=b"r" * 16, received=7)
    sid = dialler.open_stream(resume)
    (event,) = deliver(dialler, listener)
    assert event == events.ResumeReceived(sid, resume)
    listener.resumed(sid, 5)
    listener.send_data(sid, b"rest")
    assert deliver(listener, dialler) == [
        events.ResumedReceived(sid, 5),
        events.DataReceived(sid, b"rest"),
    ]


def test_resumed_answers_only_resume() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open())
    deliver(dialler, listener)
    listener.resumed(sid, 5)
    assert_session_ends(deliver(listener, dialler), ErrorCode.PROTOCOL)


def test_resumed_answers_once() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Resume(resume_id=b"r" * 16))
    deliver(dialler, listener)
    listener.resumed(sid, 5)
    listener.resumed(sid, 5)
    assert_session_ends(deliver(listener, dialler), ErrorCode.PROTOCOL)


def test_resume_counts_as_a_stream() -> None:
    dialler, listener = greeted(listener_limits=Limits(max_streams=1))
    dialler.open_stream(pb.Resume(resume_id=b"r" * 16))
    with pytest.raises(StreamReset):
        dialler.open_stream(pb.Open())
    # ... and a peer that does not count is refused.
    dialler.peer = PeerLimits()
    sid = dialler.open_stream(pb.Resume(resume_id=b"s" * 16))
    deliver(dialler, listener)
    assert_stream_reset(deliver(listener, dialler), ErrorCode.REFUSED, stream=sid)


def test_acknowledged() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(resume_id=b"r" * 16))
    deliver(dialler, listener)
    listener.ack(sid, 12)
    assert deliver(listener, dialler) == [events.AckReceived(sid, 12)]
    listener.reset(sid, ErrorCode.CANCELLED)
    listener.ack(sid, 13)
    assert_stream_reset(deliver(listener, dialler), ErrorCode.CANCELLED, stream=sid)


def test_acknowledgements_are_counted() -> None:
    dialler, listener = greeted(Limits(small_frames_per_interval=3))
    sid = dialler.open_stream(pb.Open(resume_id=b"r" * 16))
    deliver(dialler, listener)
    for received in range(4):
        listener.ack(sid, received)
    assert_session_ends(deliver(listener, dialler), ErrorCode.FLOOD)


def test_giving_up_a_finished_stream_frees_what_was_not_consumed() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open())
    dialler.send_data(sid, b"x" * 100)
    dialler.finish(sid)
    deliver(dialler, listener)
    listener.finish(sid)
    deliver(listener, dialler)
    assert (listener.open_streams, listener.buffered) == (1, 100)
    listener.reset(sid, ErrorCode.CANCELLED)
    assert (listener.open_streams, listener.buffered) == (0, 0)
    assert_frames(listener)


def test_only_the_first_farewell_is_walked_through() -> None:
    dialler, listener = greeted()
    sids = [dialler.open_stream(pb.Open()) for _ in range(3)]
    deliver(dialler, listener)
    for last in (sids[1], 0, 0):
        message = pb.GoAway(last_stream=last, deadline_ms=1000).SerializeToString()
        happened = dialler.receive_bytes(frame(FrameType.GO_AWAY, 0, message))
        refused = [one for one in happened if isinstance(one, events.StreamEnded)]
        assert len(refused) == (1 if last else 0)
    assert dialler.open_streams == 2


def test_the_last_farewell_tells_what_was_never_seen() -> None:
    dialler, listener = greeted()
    seen = dialler.open_stream(pb.Open())
    deliver(dialler, listener)
    unseen = dialler.open_stream(pb.Open())
    listener.end(ErrorCode.SHUTDOWN, "bye")
    assert seen != unseen
    happened = deliver(listener, dialler)
    assert_stream_reset(happened, ErrorCode.REFUSED, "bye", stream=unseen)
    assert_session_ends(happened, ErrorCode.SHUTDOWN, "bye", by_peer=True)


def test_largest_of_what_may_be_sent() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open())
    deliver(dialler, listener)
    block = b"h" * MAX_HEADERS
    with pytest.raises(ValueError, match="a header block of 65537 bytes"):
        dialler.send_headers(sid, block + b"h")
    dialler.send_headers(sid, block)
    assert deliver(dialler, listener) == [events.HeadersReceived(sid, block)]
    ping = frame(FrameType.PING, 0, b"\x7a\x3e" + b"\0" * (MAX_PING - 2))
    assert listener.receive_bytes(ping) == []
    with pytest.raises(ValueError, match="OPEN of 65540 bytes"):
        dialler.open_stream(pb.Open(metadata=b"x" * MAX_PAYLOAD))


def test_why_a_stream_was_reset_reaches_the_peer_whole() -> None:
    for peer_closed in (False, True):
        dialler, listener = greeted()
        sid = dialler.open_stream(pb.Open())
        deliver(dialler, listener)
        listener.reset(sid, ErrorCode.PATH_LOST, "gone", peer_closed=peer_closed)
        happened = deliver(listener, dialler)
        end = events.StreamEnded(sid, ErrorCode.PATH_LOST, "gone", True, peer_closed)
        assert happened == [end]
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open())
    dialler.bytes_to_send()
    dialler.reset(sid, ErrorCode.CANCELLED)
    assert_frames(dialler, (FrameType.RESET, sid, pb.Reset(code=ErrorCode.CANCELLED)))


def test_header_block_may_be_the_last() -> None:
    dialler, listener = greeted()
    sid = listener.open_stream(pb.Open(), fin=True)
    deliver(listener, dialler)
    dialler.send_headers(sid, b"trailers")
    dialler.finish(sid)
    assert deliver(dialler, listener) == [
        events.HeadersReceived(sid, b"trailers", True)
    ]
    listener.consumed(sid, 8)
    assert (dialler.open_streams, listener.open_streams) == (0, 0)


def test_header_blocks_count_as_what_a_session_holds() -> None:
    _, listener = greeted(listener_limits=Limits(session_bytes=10 * KIB))
    listener.receive_bytes(opened(1) + frame(FrameType.HEADERS, 1, b"h" * 10 * KIB))
    happened = listener.receive_bytes(frame(FrameType.HEADERS, 1, b"h"))
    assert_stream_reset(happened, ErrorCode.MEMORY, stream=1, by_peer=False)


def test_frames_of_two_streams_are_slices_in_turn() -> None:
    dialler, _ = greeted()
    one, two = (dialler.open_stream(pb.Open()) for _ in range(2))
    dialler.bytes_to_send()
    for sid in (one, two):
        dialler.send_data(sid, b"x" * (2 * SLICE + 1))
        assert dialler.queued(sid) == 2 * SLICE + 1
    dialler.finish(two)
    assert_frames(
        dialler,
        (FrameType.DATA, one, b"x" * SLICE),
        (FrameType.DATA, two, b"x" * SLICE),
        (FrameType.DATA, one, b"x" * SLICE),
        (FrameType.DATA, two, b"x" * SLICE),
        (FrameType.DATA, one, b"x"),
        (FrameType.DATA, two, b"x", FIN),
    )
    assert (dialler.queued(one), dialler.queued(two), dialler.queued(99)) == (0, 0, 0)


def test_slice_is_filled_to_the_last_byte() -> None:
    dialler, _ = greeted()
    one, two = (dialler.open_stream(pb.Open()) for _ in range(2))
    dialler.bytes_to_send()
    dialler.send_data(one, b"x" * (SLICE - 1))
    dialler.send_data(one, b"y" * SMALL)
    dialler.send_data(two, b"z")
    assert_frames(
        dialler,
        (FrameType.DATA, one, b"x" * (SLICE - 1)),
        (FrameType.DATA, one, b"y"),
        (FrameType.DATA, two, b"z"),
        (FrameType.DATA, one, b"y" * (SMALL - 1)),
    )


def test_flush_ends_with_the_slice_that_fills_it() -> None:
    slice_frame = SLICE + FRAME_HEADER
    for wanted, slices in (1, 1), (slice_frame, 1), (slice_frame + 1, 2):
        dialler, _ = greeted()
        streams = [dialler.open_stream(pb.Open()) for _ in range(3)]
        dialler.bytes_to_send()
        for sid in streams:
            dialler.send_data(sid, b"x" * SLICE)
        first = [(FrameType.DATA, sid, b"x" * SLICE) for sid in streams[:slices]]
        assert_frames(dialler, *first, wanted=wanted)
    # Each frame counts, also within a slice, and one that is only FIN.
    dialler, _ = greeted()
    one, two, three = (dialler.open_stream(pb.Open()) for _ in range(3))
    dialler.bytes_to_send()
    dialler.send_data(one, b"x" * SMALL)
    dialler.send_data(one, b"y" * SMALL)
    dialler.finish(two)
    dialler.send_data(three, b"z")
    assert_frames(
        dialler,
        (FrameType.DATA, one, b"x" * SMALL),
        (FrameType.DATA, one, b"y" * SMALL),
        wanted=2 * (SMALL + FRAME_HEADER),
    )
    assert_frames(dialler, (FrameType.DATA, two, b"", FIN), wanted=FRAME_HEADER)
    # A stream alone gets what is left of the flush at once.
    dialler.send_data(three, b"z" * 3 * SLICE)
    assert_frames(
        dialler,
        (FrameType.DATA, three, b"z"),
        (FrameType.DATA, three, b"z" * (2 * SLICE - 1)),
        wanted=2 * SLICE,
    )


def test_owner_goes_on_at_the_low_limits() -> None:
    high, low = 100, 10
    for left, drained in (low, True), (low + 1, False):
        dialler, _ = greeted(Limits(send_high=high, send_low=low))
        sid = dialler.open_stream(pb.Open())
        dialler.bytes_to_send()
        assert dialler.send_data(sid, b"x" * (SLICE + left))
        dialler.bytes_to_send(1)
        assert dialler.take_drained() == ([sid] if drained else [])
    dialler, _ = greeted(
        Limits(send_high=MIN_WINDOW, send_low=MIN_WINDOW, send_pieces=4)
    )
    sid = dialler.open_stream(pb.Open())
    dialler.bytes_to_send()
    full = [dialler.send_headers(sid, b"h" * SLICE) for _ in range(5)]
    assert full == [False, False, False, False, True]
    for drained in False, False, True:
        dialler.bytes_to_send(1)
        assert dialler.take_drained() == ([sid] if drained else [])


def test_only_small_pieces_are_joined() -> None:
    dialler, _ = greeted()
    sid = dialler.open_stream(pb.Open())
    dialler.bytes_to_send()
    for size in (SMALL, SMALL, SMALL - 1, JOINED - 1, 1, 1, 1):
        dialler.send_data(sid, b"x" * size)
    dialler.send_headers(sid, b"h")
    dialler.send_data(sid, b"y")
    dialler.send_data(sid, b"z")
    assert_frames(
        dialler,
        (FrameType.DATA, sid, b"x" * SMALL),
        (FrameType.DATA, sid, b"x" * (2 * SMALL - 1)),
        (FrameType.DATA, sid, b"x" * JOINED),
        (FrameType.DATA, sid, b"xx"),
        (FrameType.HEADERS, sid, b"h"),
        (FrameType.DATA, sid, b"yz"),
    )


def test_owner_waits_only_beyond_the_limits() -> None:
    dialler, _ = greeted(Limits(send_high=100, send_low=10, send_pieces=4))
    sid = dialler.open_stream(pb.Open())
    dialler.bytes_to_send()
    assert not dialler.send_data(sid, b"x" * 100)
    assert dialler.send_data(sid, b"x")
    dialler.bytes_to_send()
    assert dialler.take_drained() == [sid]
    for _ in range(4):
        assert not dialler.send_headers(sid, b"")
    assert dialler.send_headers(sid, b"")


def test_credit_of_one_flush_adds_up() -> None:
    dialler, listener = greeted()
    window = listener.limits.initial_window
    sid = dialler.open_stream(pb.Open())
    dialler.send_data(sid, b"x" * window)
    deliver(dialler, listener)
    for _ in range(2):
        for _ in range(2):
            listener.consumed(sid, window // 2)
        credit = pb.Credit(bytes=window)
        assert_frames(listener, (FrameType.CREDIT, sid, credit))
        assert_frames(listener)
        credit_frame = frame(FrameType.CREDIT, sid, credit.SerializeToString())
        assert dialler.receive_bytes(credit_frame) == []
        dialler.send_data(sid, b"x" * window)
        deliver(dialler, listener)


def test_window_of_a_slow_reader_shrinks() -> None:
    """The time that its owner reads reaches the window."""
    dialler, listener = greeted()
    window = listener.limits.initial_window
    sid = dialler.open_stream(pb.Open())
    dialler.send_data(sid, b"x" * window)
    deliver(dialler, listener)
    times = iter([0.0, 100.0, 200.0])
    listener.consumed(sid, 1, lambda: next(times))
    listener.consumed(sid, window // 2, lambda: next(times))
    assert_frames(listener)
    listener.consumed(sid, window - window // 2 - 1, lambda: next(times))
    assert_frames(listener, (FrameType.CREDIT, sid, pb.Credit(bytes=MIN_WINDOW)))


def test_resumed_stream_sends_and_receives() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Resume(resume_id=b"r" * 16))
    resume = pb.Resume(resume_id=b"r" * 16)
    assert_frames(dialler, (FrameType.RESUME, sid, resume))
    payload = resume.SerializeToString()
    listener.receive_bytes(frame(FrameType.RESUME, sid, payload))
    data = frame(FrameType.DATA, sid, b"x" * 100)
    assert listener.receive_bytes(data) == [events.DataReceived(sid, b"x" * 100)]


# What a peer may do wrong: it costs its stream or its session.

CREDIT_OF_NOTHING = frame(FrameType.CREDIT, 1, pb.Credit(bytes=0).SerializeToString())


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (
            b"\x7f\xff\xff\xff" + b"\0" * 6,
            ErrorCode.FRAME_SIZE,
            "a frame has 2147483647 bytes, but at most 65536 are allowed",
        ),
        (frame(99, 0), ErrorCode.PROTOCOL, "frame type 99"),
        (
            frame(FrameType.PING, 0, b"\x7a" + b"\x3f" * 64),
            ErrorCode.FRAME_SIZE,
            "a PING that is too long",
        ),
        *(
            (data, ErrorCode.PROTOCOL, text)
            for data, text in (
                (frame(FrameType.DATA, 0, b"x"), "stream 0 was never opened"),
                (frame(FrameType.DATA, 5, b"x"), "stream 5 was never opened"),
                (frame(FrameType.DATA, 2, b"x"), "stream 2 was never opened"),
                (opened(2), "stream 2 does not belong to the peer"),
                (opened(0), "stream 0 does not belong to the peer"),
                (opened(1) + opened(1), "stream 1 was already used"),
                (opened(3) + opened(1), "stream 1 was already used"),
                (opened(2**31 + 1), "all stream numbers are used up"),
                (
                    opened(1) + frame(FrameType.DATA, 1),
                    "DATA with neither bytes nor FIN",
                ),
                (opened(1) + CREDIT_OF_NOTHING, "CREDIT of nothing"),
                (frame(FrameType.PING, 1), "a connection's frame on a stream"),
                (frame(FrameType.PONG, 1), "a connection's frame on a stream"),
                (frame(FrameType.GO_AWAY, 1), "a connection's frame on a stream"),
                (frame(FrameType.HELLO, 0), "HELLO out of place"),
                (frame(FrameType.WELCOME, 0), "WELCOME out of place"),
                (frame(FrameType.RESUMED, 1), "stream 1 was never opened"),
                (opened(1) + frame(FrameType.RESUMED, 1), "RESUMED without RESUME"),
                (
                    frame(FrameType.OPEN, 1, b"\xff\xff\xff"),
                    "a malformed message",
                ),
                (
                    frame(FrameType.PING, 0, b"\xff" * 20),
                    "a malformed message",
                ),
            )
        ),
    ],
)
def test_session_ends_within_one_frame(data: bytes, code: ErrorCode, text: str) -> None:
    dialler, listener = greeted()
    happened = listener.receive_bytes(data + opened(99))
    assert_session_ends(happened, code, text, by_peer=False)
    assert listener.ended is happened[-1]
    # The peer is told why, as the last thing it hears.
    told = deliver(listener, dialler)
    assert_session_ends(told, code, text, by_peer=True)
    assert listener.receive_bytes(opened(101)) == []
    assert_frames(listener)


def test_events_before_the_fault_are_not_lost() -> None:
    _, listener = greeted()
    happened = listener.receive_bytes(opened(1) + frame(99, 0))
    assert isinstance(happened[0], events.StreamOpened)
    assert_session_ends(happened, ErrorCode.PROTOCOL)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts(text: str) -> None:
    """Whatever a peer says to people is one line that prints."""
    dialler, listener = Session(dialler=True), Session(dialler=False)
    meta = pb.AgentMeta(pod_name=text, version=text)
    dialler.hello(pb.Hello(role="agent", services=[text], agent=meta))
    (met,) = listener.receive_bytes(dialler.bytes_to_send())
    listener.welcome(pb.Welcome(agent_id=text, agent_name=text, services=[text]))
    (welcomed,) = dialler.receive_bytes(listener.bytes_to_send())
    assert isinstance(met, events.HelloReceived)
    assert isinstance(welcomed, events.WelcomeReceived)
    listener.receive_bytes(opened(1))
    reset = frame(FrameType.RESET, 1, pb.Reset(message=text).SerializeToString())
    going = pb.GoAway(message=text).SerializeToString()
    (broken,) = listener.receive_bytes(reset)
    (leaving, last) = listener.receive_bytes(frame(FrameType.GO_AWAY, 0, going))
    assert isinstance(broken, events.StreamEnded)
    assert isinstance(leaving, events.GoAwayReceived)
    assert isinstance(last, events.SessionEnded)
    hello, welcome = met.hello, welcomed.welcome
    shown = [hello.agent.pod_name, hello.agent.version, *hello.services]
    shown += [welcome.agent_id, welcome.agent_name, *welcome.services]
    shown += [broken.message, leaving.go_away.message, last.message]
    assert [one for one in shown if not one.isprintable()] == []


def test_unknown_frame_that_says_so_is_skipped() -> None:
    _, listener = greeted()
    assert listener.receive_bytes(frame(99, 7, b"?", IGNORABLE)) == []
    assert listener.ended is None


def test_bytes_beyond_the_credit_reset_the_stream_alone() -> None:
    _, listener = greeted()
    listener.receive_bytes(opened(1) + opened(3))
    block = b"x" * (64 * KIB)
    for _ in range(4):
        listener.receive_bytes(frame(FrameType.DATA, 1, block))
    happened = listener.receive_bytes(frame(FrameType.DATA, 1, b"x"))
    assert_stream_reset(happened, ErrorCode.FLOW_CONTROL, stream=1, by_peer=False)
    (ended,) = happened
    assert isinstance(ended, events.StreamEnded)
    # It is the peer that lives, and breaks a rule.
    assert not ended.peer_closed
    reset = pb.Reset(code=ErrorCode.FLOW_CONTROL, message="more than credit")
    assert_frames(listener, (FrameType.RESET, 1, reset))
    assert listener.buffered == 0
    assert listener.open_streams == 1
    # What is still on its way is ignored.
    assert listener.receive_bytes(frame(FrameType.DATA, 1, block)) == []


def test_bytes_after_fin_reset_the_stream_alone() -> None:
    _, listener = greeted()
    listener.receive_bytes(opened(1, fin=True))
    happened = listener.receive_bytes(frame(FrameType.DATA, 1, b"x"))
    assert_stream_reset(happened, ErrorCode.PROTOCOL, stream=1, by_peer=False)
    assert len(happened) == 1
    reset = pb.Reset(code=ErrorCode.PROTOCOL, message="bytes after FIN")
    assert_frames(listener, (FrameType.RESET, 1, reset))
    assert listener.ended is None


def test_credit_beyond_the_largest_resets_the_stream_alone() -> None:
    _, listener = greeted()
    listener.receive_bytes(opened(1))
    largest = MAX_CREDIT - listener.peer.initial_window
    credit = pb.Credit(bytes=largest).SerializeToString()
    assert listener.receive_bytes(frame(FrameType.CREDIT, 1, credit)) == []
    credit = pb.Credit(bytes=1).SerializeToString()
    happened = listener.receive_bytes(frame(FrameType.CREDIT, 1, credit))
    assert_stream_reset(happened, ErrorCode.FLOW_CONTROL, stream=1, by_peer=False)
    text = "credit beyond 2**31 - 1"
    reset = pb.Reset(code=ErrorCode.FLOW_CONTROL, message=text)
    assert_frames(listener, (FrameType.RESET, 1, reset))


def test_streams_beyond_our_limit_are_refused() -> None:
    _, listener = greeted(listener_limits=Limits(max_streams=2))
    happened = listener.receive_bytes(opened(1) + opened(3) + opened(5))
    assert [type(e) for e in happened] == [events.StreamOpened] * 2
    reset = pb.Reset(code=ErrorCode.REFUSED, message="too many streams")
    assert_frames(listener, (FrameType.RESET, 5, reset))
    assert listener.open_streams == 2


def test_stream_that_holds_most_is_shed_when_the_session_holds_too_much() -> None:
    _, listener = greeted(listener_limits=Limits(session_bytes=100 * KIB))
    listener.receive_bytes(opened(1) + opened(3))
    listener.receive_bytes(frame(FrameType.DATA, 1, b"x" * 60 * KIB))
    happened = listener.receive_bytes(frame(FrameType.DATA, 3, b"x" * 50 * KIB))
    assert isinstance(happened[0], events.DataReceived)
    text = "its bytes were not consumed"
    assert_stream_reset(happened, ErrorCode.MEMORY, text, stream=1, by_peer=False)
    reset = pb.Reset(code=ErrorCode.MEMORY, message=text)
    assert_frames(listener, (FrameType.RESET, 1, reset))
    assert listener.buffered == 50 * KIB


def test_stream_that_is_over_is_shed_without_a_word_to_the_peer() -> None:
    _, listener = greeted(listener_limits=Limits(session_bytes=100 * KIB))
    listener.receive_bytes(opened(1) + opened(3))
    listener.receive_bytes(frame(FrameType.DATA, 1, b"x" * 60 * KIB, FIN))
    listener.finish(1)
    listener.bytes_to_send()
    assert listener.receive_bytes(frame(FrameType.DATA, 1, b"late")) == []
    happened = listener.receive_bytes(frame(FrameType.DATA, 3, b"x" * 50 * KIB))
    text = "its bytes were not consumed"
    assert_stream_reset(happened, ErrorCode.MEMORY, text, stream=1, by_peer=False)
    assert_frames(listener)
    assert (listener.open_streams, listener.buffered) == (1, 50 * KIB)


def test_streams_that_the_peer_does_not_read_are_shed() -> None:
    limits = Limits(queued_bytes=800 * KIB, queued_high=400 * KIB)
    dialler, _ = greeted(dialler_limits=limits)
    large, small = (dialler.open_stream(pb.Open()) for _ in range(2))
    dialler.bytes_to_send()
    assert not dialler.send_data(small, b"x" * 50 * KIB)
    assert dialler.send_data(large, b"x" * 700 * KIB)
    # The session has many bytes, so each producer waits after its next piece.
    assert dialler.send_data(small, b"x")
    assert dialler.take_shed() == []
    dialler.send_headers(small, b"x" * 50 * KIB)
    assert dialler.take_shed() == [large] and dialler.take_shed() == []
    assert (dialler.queued(large), dialler.queued(small)) == (0, 100 * KIB + 1)
    assert dialler.all_queued == 100 * KIB + 1
    assert not dialler.send_data(large, b"dropped")
    dialler.reset(small, ErrorCode.CANCELLED, "enough")
    assert_frames(
        dialler,
        (
            FrameType.RESET,
            large,
            pb.Reset(code=ErrorCode.MEMORY, message="too many bytes waited to be sent"),
        ),
        (
            FrameType.RESET,
            small,
            pb.Reset(code=ErrorCode.CANCELLED, message="enough"),
        ),
    )
    assert dialler.all_queued == 0


def test_one_message_for_each_stream_does_not_fill_the_memory() -> None:
    """One search for streams to reset suffices for many writes."""
    limits = Limits(queued_bytes=1024 * KIB, queued_high=512 * KIB)
    dialler, _ = greeted(dialler_limits=limits)
    most = shed = 0
    for _ in range(200):
        dialler.send_data(dialler.open_stream(pb.Open()), b"x" * 16 * KIB)
        most = max(most, dialler.all_queued)
        gone = dialler.take_shed()
        assert len(gone) in (0, 9)
        shed += len(gone)
    assert most <= limits.queued_bytes
    assert dialler.all_queued == (200 - shed) * 16 * KIB


def test_holder_whose_bytes_wait_is_shed_and_not_another_one() -> None:
    limits = Limits(queued_bytes=100 * KIB, queued_high=80 * KIB)
    dialler, _ = greeted(dialler_limits=limits)
    one, two, other = (dialler.open_stream(pb.Open()) for _ in range(3))
    for sid, holder in ((one, "greedy"), (two, "greedy"), (other, "modest")):
        dialler.charge(sid, holder)
    dialler.send_data(other, b"x" * 40 * KIB)
    dialler.send_data(one, b"x" * 35 * KIB)
    dialler.send_data(two, b"x" * 30 * KIB)
    assert dialler.take_shed() == [one]


def test_sent_bytes_no_longer_count_as_queued() -> None:
    dialler, listener = greeted()
    one, two = (dialler.open_stream(pb.Open()) for _ in range(2))
    dialler.send_data(one, b"x" * 100 * KIB)
    dialler.send_data(two, b"x" * 300 * KIB)
    assert dialler.all_queued == 400 * KIB
    deliver(dialler, listener)
    assert dialler.all_queued == dialler.queued(two) == 44 * KIB
    listener.reset(two, ErrorCode.CANCELLED, "enough")
    deliver(listener, dialler)
    assert dialler.all_queued == 0
    dialler.send_data(one, b"x")
    dialler.end(ErrorCode.SHUTDOWN)
    assert dialler.all_queued == 0


def test_streams_are_refused_while_going_away() -> None:
    _, listener = greeted()
    listener.go_away(pb.GoAway(deadline_ms=5000))
    listener.bytes_to_send()
    assert listener.receive_bytes(opened(1)) == []
    reset = pb.Reset(code=ErrorCode.REFUSED, message="going away")
    assert_frames(listener, (FrameType.RESET, 1, reset))


def test_who_holds_most_is_shed_and_not_who_has_the_largest_stream() -> None:
    _, listener = greeted(listener_limits=Limits(session_bytes=100 * KIB))
    listener.receive_bytes(opened(1) + opened(3) + opened(5) + opened(7))
    for stream_id in (1, 3, 5):
        listener.charge(stream_id, "greedy")
    listener.charge(7, "modest")
    listener.charge(9, "never opened")
    happened = listener.receive_bytes(
        frame(FrameType.DATA, 7, b"x" * 40 * KIB)
        + frame(FrameType.DATA, 1, b"x" * 20 * KIB)
        + frame(FrameType.DATA, 3, b"x" * 30 * KIB)
        + frame(FrameType.DATA, 5, b"x" * 15 * KIB)
    )
    assert_stream_reset(happened, ErrorCode.MEMORY, stream=3, by_peer=False)
    assert listener.buffered == 75 * KIB


def test_pong_without_ping() -> None:
    """It costs its sender nothing, so each answers a PING."""
    _, listener = greeted()
    listener.ping(1)
    answer = frame(FrameType.PONG, 0, b"\x08\x01")
    assert listener.receive_bytes(answer) == [events.Ponged(1)]
    (ended,) = listener.receive_bytes(answer)
    assert ended == events.SessionEnded(ErrorCode.PROTOCOL, "PONG without PING", False)


@pytest.mark.parametrize(
    ("limits", "attack", "text"),
    [
        (
            Limits(resets_per_interval=10),
            [opened(2 * n + 1) + frame(FrameType.RESET, 2 * n + 1) for n in range(11)],
            "too many RESETs",
        ),
        (
            Limits(pings_per_interval=10),
            [frame(FrameType.PING, 0)] * 11,
            "too many PINGs",
        ),
        (
            Limits(small_frames_per_interval=10),
            [frame(99, 0, b"", IGNORABLE)] * 11,
            "too many small frames",
        ),
        (
            Limits(small_frames_per_interval=10, max_streams=1),
            [opened(2 * n + 1) for n in range(11)],
            "too many small frames",
        ),
        (
            Limits(small_frames_per_interval=10),
            [opened(1), *[frame(FrameType.HEADERS, 1)] * 10],
            "too many small frames",
        ),
        (
            Limits(small_frames_per_interval=10),
            [opened(1), *[frame(FrameType.CREDIT, 1, b"\x08\x01")] * 10],
            "too many small frames",
        ),
        (
            Limits(max_queued_control=10, pings_per_interval=100),
            [frame(FrameType.PING, 0)] * 11,
            "responses are not being read",
        ),
    ],
)
def test_flood_ends_the_session(limits: Limits, attack: list[bytes], text: str) -> None:
    _, listener = greeted(listener_limits=limits)
    happened: list[events.Event] = []
    for data in attack[:-1]:
        happened += listener.receive_bytes(data)
    assert listener.ended is None
    happened += listener.receive_bytes(attack[-1])
    assert_session_ends(happened, ErrorCode.FLOOD, text, by_peer=False)


def test_texts_of_a_peer_are_one_line_that_prints() -> None:
    dialler, _ = greeted()
    sid = dialler.open_stream(pb.Open())
    reset = pb.Reset(code=5, message="a\x1b[2J\r\nINFO forged").SerializeToString()
    happened = dialler.receive_bytes(frame(FrameType.RESET, sid, reset))
    assert_stream_reset(happened, ErrorCode(5), "a?[2J??INFO forged", by_peer=True)
    bye = pb.GoAway(code=1, message="\x07bye\n").SerializeToString()
    happened = dialler.receive_bytes(frame(FrameType.GO_AWAY, 0, bye))
    assert_session_ends(happened, ErrorCode(1), "?bye?", by_peer=True)


def test_budget_is_renewed_by_the_owner() -> None:
    _, listener = greeted(listener_limits=Limits(pings_per_interval=2))
    for _ in range(5):
        listener.receive_bytes(frame(FrameType.PING, 0) * 2)
        listener.budget.renew()
    assert listener.ended is None


def test_stranger_can_send_only_a_small_hello() -> None:
    listener = Session(dialler=False)
    claimed = (MAX_HELLO + 1).to_bytes(4, "big") + b"\0" * 4 + b"\x01\x00"
    assert_session_ends(listener.receive_bytes(claimed), ErrorCode.FRAME_SIZE)


def test_nothing_is_accepted_before_the_greeting() -> None:
    listener = Session(dialler=False)
    assert_session_ends(listener.receive_bytes(opened(1)), ErrorCode.PROTOCOL)
    listener = Session(dialler=False)
    hello = frame(FrameType.HELLO, 0, pb.Hello(versions=[1]).SerializeToString())
    happened = listener.receive_bytes(hello + opened(1))
    assert isinstance(happened[0], events.HelloReceived)
    assert_session_ends(happened, ErrorCode.PROTOCOL)


def test_second_hello_ends_the_session() -> None:
    listener = Session(dialler=False)
    hello = frame(FrameType.HELLO, 0, pb.Hello(versions=[1]).SerializeToString())
    assert_session_ends(listener.receive_bytes(hello + hello), ErrorCode.PROTOCOL)


def test_no_common_version_ends_the_session() -> None:
    listener = Session(dialler=False)
    hello = frame(FrameType.HELLO, 0, pb.Hello(versions=[7, 8]).SerializeToString())
    assert_session_ends(listener.receive_bytes(hello), ErrorCode.VERSION)
    dialler = Session(dialler=True)
    welcome = frame(FrameType.WELCOME, 0, pb.Welcome(version=9).SerializeToString())
    assert_session_ends(dialler.receive_bytes(welcome), ErrorCode.VERSION)


def test_limits_that_cannot_work_end_the_session() -> None:
    listener = Session(dialler=False)
    hello = pb.Hello(versions=[1])
    hello.limits.initial_window = 10
    data = frame(FrameType.HELLO, 0, hello.SerializeToString())
    assert_session_ends(listener.receive_bytes(data), ErrorCode.PROTOCOL)


def test_peer_that_leaves_now_ends_the_session_with_its_code() -> None:
    dialler, _ = greeted()
    data = pb.GoAway(code=4711, message="m" * 5000).SerializeToString()
    happened = dialler.receive_bytes(frame(FrameType.GO_AWAY, 0, data))
    assert_session_ends(happened, ErrorCode.INTERNAL, "m" * 1024, by_peer=True)


def test_own_texts_are_cut() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open())
    dialler.reset(sid, ErrorCode.INTERNAL, "x" * 5000)
    happened = deliver(dialler, listener)
    assert_stream_reset(happened, ErrorCode.INTERNAL, "x" * 1024, by_peer=True)
    dialler.end(ErrorCode.SHUTDOWN, "y" * 5000)
    happened = deliver(dialler, listener)
    assert_session_ends(happened, ErrorCode.SHUTDOWN, "y" * 1024, by_peer=True)
