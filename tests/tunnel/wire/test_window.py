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
