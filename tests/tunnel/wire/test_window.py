"""How large windows become."""

from tunnel.wire.limits import KIB, MIB, MIN_WINDOW
from tunnel.wire.window import WindowEstimator


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
