"""Properties: cutting, credit, garbage."""

from __future__ import annotations

import random
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.tunnel.wire.helpers import greeted
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.wire import events
from tunnel.wire.limits import MIN_WINDOW, Limits
from tunnel.wire.session import Session

SMALL = Limits(initial_window=131_072, max_window=200_000, max_streams=8)

SIZES = st.sampled_from([1, 3, 50, 1000, 20_000, 90_000, 131_073, 300_000])


class TwoSessions(RuleBasedStateMachine):
    """
    Two sessions driven by random legal calls, over a path that cuts at random places.

    Checked all along: every byte arrives once and in order, no side ends, nobody holds
    more than a window, and credit is neither lost nor made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sides = greeted(SMALL, SMALL)
        self.flight = [bytearray(), bytearray()]
        self.sent: dict[tuple[int, int], bytearray] = defaultdict(bytearray)
        self.got: dict[tuple[int, int], bytearray] = defaultdict(bytearray)
        self.unconsumed: dict[tuple[int, int], int] = defaultdict(int)
        self.open: tuple[set[int], set[int]] = (set(), set())
        #: Reset by one of the sides; and, for each side, those it has done with.
        self.reset_ids: set[int] = set()
        self.done: tuple[set[int], set[int]] = (set(), set())
        self.counter = 0
        self.now = 0.0

    def _pick(self, side: int, seed: int) -> int | None:
        ids = sorted(self.open[side])
        return ids[seed % len(ids)] if ids else None

    @rule(side=st.integers(0, 1), fin=st.sampled_from([False, False, False, True]))
    def open_stream(self, side: int, fin: bool) -> None:
        session = self.sides[side]
        if session.open_streams < 6:
            sid = session.open_stream(pb.Open(method="/s/M"), fin=fin)
            if not fin:
                self.open[side].add(sid)

    @rule(side=st.integers(0, 1), seed=st.integers(0, 9), size=SIZES)
    def send(self, side: int, seed: int, size: int) -> None:
        if not self.open[side]:
            self.open_stream(side, False)
        sid = self._pick(side, seed)
        if sid is not None and sid in set(self.sides[side].streams()):
            self.counter += 1
            data = self.counter.to_bytes(4, "big") * (size // 4 + 1)
            if size % 3 == 0:
                data = data[:60_000]
                self.sides[side].send_headers(sid, data)
            else:
                self.sides[side].send_data(sid, data)
            self.sent[side, sid] += data

    @rule(side=st.integers(0, 1), seed=st.integers(0, 9))
    def finish(self, side: int, seed: int) -> None:
        sid = self._pick(side, seed)
        if sid is not None:
            self.sides[side].finish(sid)
            self.open[side].discard(sid)

    @precondition(lambda self: self.counter > 3)
    @rule(side=st.integers(0, 1), seed=st.integers(0, 9))
    def reset(self, side: int, seed: int) -> None:
        ids = sorted(self.sides[side].streams())
        if ids:
            sid = ids[seed % len(ids)]
            self.sides[side].reset(sid, ErrorCode.CANCELLED)
            self._forget(side, sid)

    def _forget(self, side: int, sid: int) -> None:
        self.reset_ids.add(sid)
        self.done[side].add(sid)
        self.open[side].discard(sid)
        self.unconsumed.pop((side, sid), None)

    @rule(side=st.integers(0, 1))
    def ping(self, side: int) -> None:
        self.sides[side].ping(1)

    @rule(side=st.integers(0, 1), grow=st.integers(131_072, 200_000))
    def grow(self, side: int, grow: int) -> None:
        self.sides[side].window_target = max(self.sides[side].window_target, grow)

    @rule(side=st.integers(0, 1), shrink=st.integers(MIN_WINDOW, 200_000))
    def shrink(self, side: int, shrink: int) -> None:
        self.sides[side].window_target = min(self.sides[side].window_target, shrink)

    @rule(
        side=st.integers(0, 1),
        share=st.integers(1, 100),
        passed=st.sampled_from([0.0, 0.001, 0.1, 10.0, -1.0]),
    )
    def consume(self, side: int, share: int, passed: float) -> None:
        self.now += passed
        for (who, sid), count in list(self.unconsumed.items()):
            if who == side:
                part = max(1, count * share // 100)
                self.sides[side].consumed(sid, part, lambda: self.now)
                self.unconsumed[who, sid] -= part
                if not self.unconsumed[who, sid]:
                    del self.unconsumed[who, sid]

    @rule(side=st.integers(0, 1))
    def flush(self, side: int) -> None:
        self.flight[side] += self.sides[side].bytes_to_send()

    @rule(side=st.integers(0, 1), share=st.integers(1, 100))
    def deliver(self, side: int, share: int) -> None:
        flight = self.flight[side]
        count = max(1, len(flight) * share // 100)
        chunk = bytes(flight[:count])
        del flight[:count]
        to = 1 - side
        for event in self.sides[to].receive_bytes(chunk):
            assert not isinstance(event, events.SessionEnded), event
            if isinstance(event, events.StreamOpened):
                self.open[to].add(event.stream_id)
            elif isinstance(event, events.DataReceived | events.HeadersReceived):
                data = (
                    event.data
                    if isinstance(event, events.DataReceived)
                    else event.block
                )
                self.got[side, event.stream_id] += data
                if data and event.stream_id not in self.done[to]:
                    self.unconsumed[to, event.stream_id] += len(data)
            elif isinstance(event, events.StreamEnded):
                assert event.by_peer, event
                self._forget(to, event.stream_id)

    @invariant()
    def bytes_arrive_once_and_in_order(self) -> None:
        for key, data in self.got.items():
            assert self.sent[key].startswith(data)

    @invariant()
    def nobody_holds_more_than_its_windows(self) -> None:
        for session in self.sides:
            for stream in session._by_id.values():
                window = stream.window
                assert (
                    window.available + window.buffered + window.unannounced
                    == window.size
                )
                assert window.buffered <= window.size <= 200_000

    @precondition(lambda self: self.counter)
    @rule()
    def settle(self) -> None:
        """Everything is delivered and consumed: then nothing may be left anywhere."""
        for _ in range(400):
            for side in (0, 1):
                self.flush(side)
                while self.flight[side]:
                    self.deliver(side, 100)
                self.consume(1 - side, 100, 0.001)
            if not any(s.has_output for s in self.sides):
                break
        # What finished on one side alone may go on; what is reset holds nothing.
        for key, data in self.sent.items():
            if key[1] not in self.reset_ids:
                assert self.got[key] == data
        assert [s.buffered for s in self.sides] == [0, 0]


TwoSessions.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestTwoSessions = TwoSessions.TestCase


@given(st.binary(max_size=2000), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=300)
def test_garbage_ends_with_a_code_and_holds_no_memory(
    garbage: bytes, known: bool, dialler: bool
) -> None:
    if known:
        session = greeted()[0 if dialler else 1]
    else:
        session = Session(dialler=dialler)
    happened = session.receive_bytes(garbage)
    assert session._decoder.buffered <= len(garbage)
    for event in happened:
        if isinstance(event, events.SessionEnded):
            assert event.code is not ErrorCode.NONE or event.by_peer


@given(st.integers(0, 2**32), st.integers(1, 400))
@settings(deadline=None, max_examples=60)
def test_mutated_frames_never_raise(seed: int, mutations: int) -> None:
    rng = random.Random(seed)
    dialler, listener = greeted(SMALL, SMALL)
    for _ in range(5):
        sid = dialler.open_stream(pb.Open(method="/s/M", metadata=b"x" * 50))
        dialler.send_headers(sid, b"h" * 30)
        dialler.send_data(sid, b"d" * 5000)
        dialler.ping(sid)
    data = bytearray(dialler.bytes_to_send())
    for _ in range(mutations):
        data[rng.randrange(len(data))] = rng.randrange(256)
    position = 0
    while position < len(data):
        step = rng.randrange(1, 3000)
        listener.receive_bytes(bytes(data[position : position + step]))
        position += step
    assert listener.buffered <= len(data)
    listener.bytes_to_send()


@given(st.lists(st.integers(1, 4000), max_size=40))
@settings(deadline=None)
def test_any_cutting_gives_the_same_events(cuts: list[int]) -> None:
    def script() -> bytes:
        dialler, _ = greeted()
        for number in range(6):
            sid = dialler.open_stream(pb.Open(method=f"/s/{number}"), fin=number == 3)
            if number != 3:
                dialler.send_headers(sid, b"h" * 20 * number)
                dialler.send_data(sid, b"d" * 700 * number)
            if number == 2:
                dialler.reset(sid, ErrorCode.CANCELLED)
            if number == 4:
                dialler.finish(sid)
        dialler.ping(3)
        return dialler.bytes_to_send()

    data = script()
    whole = greeted()[1].receive_bytes(data)
    listener = greeted()[1]
    pieces: list[events.Event] = []
    position = 0
    for cut in [*cuts, len(data)]:
        pieces += listener.receive_bytes(data[position : position + cut])
        position += cut
    assert pieces == whole
