"""Credit, and how large windows become."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.wire.limits import KIB, MIB
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


def test_window_grows_to_its_target_and_never_shrinks() -> None:
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
