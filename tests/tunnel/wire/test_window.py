"""Credit, and how large windows become."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.wire.limits import KIB, MIB, MIN_WINDOW
from tunnel.wire.window import ReceiveWindow, WindowEstimator


@given(st.lists(st.integers(1, 400), max_size=60), st.integers(100, 300))
def test_credit_is_conserved(steps: list[int], size: int) -> None:
    window = ReceiveWindow(size)
    credit = size
    for step in steps:
        count = min(step, credit)
        assert window.received(count)
        credit -= count
        credit += window.consumed(count // 2, size)
        assert window.available == credit
        assert window.available + window.buffered + window.unannounced == window.size


def test_more_than_credit_is_refused() -> None:
    window = ReceiveWindow(10)
    assert window.received(10)
    assert not window.received(1)
    assert window.buffered == 10


def test_nothing_is_announced_below_half_the_window() -> None:
    window = ReceiveWindow(100)
    window.received(80)
    assert window.consumed(49, 100) == 0
    assert window.consumed(1, 100) == 50


def test_consuming_what_was_not_there_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="0 were there"):
        ReceiveWindow(10).consumed(1, 10)


def read(
    window: ReceiveWindow, rate: float, count: int, target: int, behind: bool
) -> int:
    """Have *count* bytes read at *rate* a second; the credit that came back."""
    clock, credit = [0.0], 0
    piece = 16 * KIB
    for _ in range(count // piece):
        window.received(min(window.available, 2 * piece if behind else piece))
        clock[0] += piece / rate
        taken = min(piece, window.buffered)
        credit += window.consumed(taken, target, lambda: clock[0])
    return credit


def test_reader_who_is_behind_gets_a_second() -> None:
    """However large the windows of the session are."""
    window = ReceiveWindow(256 * KIB)
    read(window, 300_000, 8 * MIB, 16 * MIB, behind=True)
    assert 250_000 < window.size < 350_000


def test_window_shrinks_with_its_reader() -> None:
    """... to the smallest legal one, and grows again."""
    window = ReceiveWindow(16 * MIB)
    read(window, 10_000, 40 * MIB, 16 * MIB, behind=True)
    assert window.size == MIN_WINDOW
    read(window, 100e6, 40 * MIB, 16 * MIB, behind=False)
    assert window.size == 16 * MIB


def test_first_bytes_of_a_reader_prove_little() -> None:
    """They vanish in its buffers: with each half the window at most doubles."""
    window = ReceiveWindow(256 * KIB)
    read(window, 100e6, 128 * KIB, 16 * MIB, behind=False)
    assert window.size == 512 * KIB
    read(window, 100e6, 256 * KIB, 16 * MIB, behind=False)
    assert window.size == 1 * MIB


def test_reader_who_keeps_up_keeps_its_window() -> None:
    """A stream that was idle is not slow."""
    window = ReceiveWindow(1 * MIB)
    read(window, 1_000, 2 * MIB, 1 * MIB, behind=False)
    assert window.size == 1 * MIB


def test_queue_on_the_path_shrinks_windows() -> None:
    """Where bytes wait for two seconds, the path gets what it carries in one."""
    estimator = WindowEstimator(256 * KIB)
    for elapsed, arrived in ((0.05, 256 * KIB), (2.0, 400_000)):
        while not estimator.received(16 * KIB):
            pass
        assert estimator.probe(elapsed)
        estimator.received(arrived)
        estimator.probe_answered(2 * elapsed, 16 * MIB)
    assert 190_000 < estimator.target < 210_000


def test_without_a_clock_a_window_grows_to_its_target() -> None:
    window = ReceiveWindow(100)
    window.received(100)
    assert window.consumed(100, 400) == 400
    assert window.size == 400
    window.received(400)
    window.consumed(400, 100)
    assert window.size == 400


def test_long_path_gets_twice_its_bandwidth_delay_product() -> None:
    estimator = WindowEstimator(256 * KIB)
    now = 0.0
    # 10 MB/s at 100 ms: the product is 1 MB.
    for _ in range(20):
        while not estimator.received(16 * KIB):
            now += 16 * KIB / 10e6
        assert estimator.probe(now)
        for _ in range(61):
            estimator.received(16 * KIB)
        now += 0.1
        estimator.probe_answered(now, 16 * MIB)
    assert 1.9e6 < estimator.target < 2.5e6


def test_short_path_keeps_the_first_window_though_it_is_fast() -> None:
    estimator = WindowEstimator(256 * KIB)
    now = 0.0
    for _ in range(20):
        while not estimator.received(16 * KIB):
            now += 16 * KIB / 500e6
        now += estimator.PACE
        assert estimator.probe(now)
        estimator.received(50_000)
        now += 0.0001
        estimator.probe_answered(now, 16 * MIB)
    assert estimator.target == 256 * KIB


def test_growth_stops_at_the_cap() -> None:
    estimator = WindowEstimator(256 * KIB)
    estimator.received(10**9)
    assert estimator.probe(0.0)
    estimator.received(10**9)
    assert estimator.probe_answered(1.0, 16 * MIB) == 16 * MIB


def test_quiet_path_is_never_probed() -> None:
    estimator = WindowEstimator(256 * KIB)
    assert not any(estimator.received(100) for _ in range(500))


def test_fast_path_is_probed_at_a_pace() -> None:
    estimator = WindowEstimator(256 * KIB)
    probes = 0
    for step in range(100_000):
        now = step * 0.0001
        if estimator.received(64 * KIB) and estimator.probe(now):
            probes += 1
            estimator.probe_answered(now + 0.0001, 16 * MIB)
    # Ten seconds: a fifth of what a peer takes for a flood.
    assert 150 < probes <= 200


class Ticks:
    """A clock that a test sets, and how often it was asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now


def test_reader_is_measured_after_exactly_half_a_window() -> None:
    size, clock = 2 * MIN_WINDOW, Ticks()
    window = ReceiveWindow(size)
    window.received(size)
    window.consumed(1, size, clock)
    clock.now = 100.0
    window.consumed(size // 2 - 2, size, clock)
    assert (window.size, clock.asked) == (size, 1)
    window.consumed(1, size, clock)
    assert (window.size, clock.asked) == (MIN_WINDOW, 2)


def test_reader_who_leaves_a_quarter_keeps_up() -> None:
    for more, left in (0, 2 * MIN_WINDOW), (1, MIN_WINDOW):
        size, clock = 2 * MIN_WINDOW, Ticks()
        window = ReceiveWindow(size)
        window.received(size * 3 // 4 + more)
        window.consumed(1, size, clock)
        clock.now = 100.0
        window.consumed(size // 2 - 1, size, clock)
        assert window.size == left


def test_reader_who_keeps_up_gets_four_seconds() -> None:
    clock = Ticks()
    window = ReceiveWindow(200_000)
    window.received(120_000)
    window.consumed(1, 200_000, clock)
    clock.now = 1.25
    assert window.consumed(99_999, 10**9, clock) == 220_000
    assert window.size == 320_000
    # The next measurement begins there.
    asked = clock.asked
    window.received(160_000)
    window.consumed(159_999, 320_000, clock)
    assert clock.asked == asked
    window.consumed(1, 320_000, clock)
    assert clock.asked == asked + 1


def test_window_doubles_once_before_it_is_measured() -> None:
    clock = Ticks()
    window = ReceiveWindow(200_000)
    window.received(40_000)
    window.consumed(40_000, 10**9, clock)
    assert window.size == 400_000
    asked = clock.asked
    window.received(10)
    window.consumed(10, 10**9, clock)
    assert (window.size, clock.asked) == (400_000, asked)


def test_probe_is_due_beyond_a_quarter_of_the_window() -> None:
    estimator = WindowEstimator(400)
    assert not estimator.received(100)
    assert estimator.received(1)
    assert estimator.probe(5.0)
    assert not estimator.received(1000)
    estimator.probe_answered(5.001, 400)
    assert estimator.target == 400
    assert not estimator.received(100)
    assert estimator.received(1)
    assert not estimator.probe(5.0 + estimator.PACE - 0.001)
    assert not estimator.received(100)
    assert estimator.received(1)
    assert estimator.probe(5.0 + estimator.PACE)


def test_estimate_in_numbers() -> None:
    estimator = WindowEstimator(256 * KIB)
    assert estimator.rtt == 0.0
    assert estimator.probe_answered(0.0, 16 * MIB) == 256 * KIB

    def probed(at: float, seconds: float, arrived: int) -> int:
        assert estimator.probe(at)
        estimator.received(arrived)
        return estimator.probe_answered(at + seconds, 16 * MIB)

    best = 2 * 1_000_000 + estimator.SLACK
    assert probed(1.0, 0.5, 1_000_000) == best
    # A longer round trip has a queue in it, and a lower rate proves nothing.
    assert probed(2.0, 1.0, 1_500_000) == best
    assert estimator.rtt == 0.5
    assert probed(10.0, 2.0, 300_000) == 150_000
    # After that the rate is measured again.
    assert probed(20.0, 0.5, 200_000) == 400_000 + estimator.SLACK
    # A second of queue is no reason to shrink.
    assert probed(30.0, 1.5, 3_000_000) == best
    assert probed(40.0, 3.0, 300) == MIN_WINDOW
