"""Streams of a session: what both sides see when both keep the rules."""

import pytest

from tests.tunnel.wire.helpers import deliver, ended, frame, greeted
from tunnel.errors import ErrorCode, SessionClosed, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.wire import events
from tunnel.wire.framing import FrameType
from tunnel.wire.limits import KIB, Limits, PeerLimits
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
    dialler, listener = greeted()
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
    assert happened[1:] == [
        events.StreamEnded(sid, ErrorCode.CANCELLED, "changed my mind")
    ]
    assert dialler.open_streams == listener.open_streams == 0


def test_sending_on_a_stream_that_the_peer_reset_is_harmless() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(method="/s/M"))
    deliver(dialler, listener)
    listener.reset(sid, ErrorCode.INTERNAL)
    deliver(listener, dialler)
    assert not dialler.send_data(sid, b"x")
    dialler.finish(sid)
    dialler.consumed(sid, 5)
    assert not dialler.has_output


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
    assert caught.value.code is ErrorCode.REFUSED


def test_going_away_refuses_new_streams_and_keeps_old_ones() -> None:
    dialler, listener = greeted()
    old = dialler.open_stream(pb.Open(method="/s/Old"))
    deliver(dialler, listener)
    late = dialler.open_stream(pb.Open(method="/s/Late"))
    listener.go_away(pb.GoAway(deadline_ms=5000, message="bye", elsewhere=True))
    happened = deliver(listener, dialler)
    assert isinstance(happened[0], events.GoAwayReceived)
    assert happened[1:] == [events.StreamEnded(late, ErrorCode.REFUSED, "bye")]
    with pytest.raises(SessionClosed):
        dialler.open_stream(pb.Open())
    dialler.send_data(old, b"still")
    happened = deliver(dialler, listener)
    assert events.DataReceived(old, b"still") in happened
    assert not any(isinstance(e, events.StreamOpened) for e in happened)


def test_end_is_told_to_the_peer_with_its_reason() -> None:
    dialler, listener = greeted()
    dialler.open_stream(pb.Open())
    dialler.end(ErrorCode.SUPERSEDED, "newer")
    happened = deliver(dialler, listener)
    assert happened[-1] == events.SessionEnded(ErrorCode.SUPERSEDED, "newer", True)
    assert dialler.open_streams == 0
    assert dialler.receive_bytes(b"anything") == []


def test_a_stream_goes_on_by_another_connection() -> None:
    dialler, listener = greeted()
    resume = pb.Resume(resume_id=b"r" * 16, received=7)
    sid = dialler.resume_stream(resume)
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
    assert ended(deliver(listener, dialler)).code == ErrorCode.PROTOCOL


def test_resumed_answers_once() -> None:
    dialler, listener = greeted()
    sid = dialler.resume_stream(pb.Resume(resume_id=b"r" * 16))
    deliver(dialler, listener)
    listener.resumed(sid, 5)
    listener.resumed(sid, 5)
    assert ended(deliver(listener, dialler)).code == ErrorCode.PROTOCOL


def test_resume_counts_as_a_stream() -> None:
    dialler, listener = greeted(listener_limits=Limits(max_streams=1))
    dialler.resume_stream(pb.Resume(resume_id=b"r" * 16))
    with pytest.raises(StreamReset):
        dialler.open_stream(pb.Open())
    # ... and a peer that does not count is refused.
    dialler.peer = PeerLimits()
    sid = dialler.resume_stream(pb.Resume(resume_id=b"s" * 16))
    deliver(dialler, listener)
    (refused,) = deliver(listener, dialler)
    assert isinstance(refused, events.StreamEnded)
    assert (refused.stream_id, refused.code) == (sid, ErrorCode.REFUSED)


def test_acknowledged() -> None:
    dialler, listener = greeted()
    sid = dialler.open_stream(pb.Open(resume_id=b"r" * 16))
    deliver(dialler, listener)
    listener.ack(sid, 12)
    assert deliver(listener, dialler) == [events.AckReceived(sid, 12)]
    listener.reset(sid, ErrorCode.CANCELLED)
    listener.ack(sid, 13)
    (reset,) = deliver(listener, dialler)
    assert isinstance(reset, events.StreamEnded)


def test_acknowledgements_are_counted() -> None:
    dialler, listener = greeted(Limits(small_frames_per_interval=3))
    sid = dialler.open_stream(pb.Open(resume_id=b"r" * 16))
    deliver(dialler, listener)
    for received in range(4):
        listener.ack(sid, received)
    assert ended(deliver(listener, dialler)).code == ErrorCode.FLOOD


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
    assert not listener.has_output


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
    refused, end = deliver(listener, dialler)[1:]
    assert isinstance(refused, events.StreamEnded)
    assert (refused.stream_id, refused.code) == (unseen, ErrorCode.REFUSED)
    assert isinstance(end, events.SessionEnded) and seen != unseen
