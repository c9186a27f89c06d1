import httpx2

from parley.node.registration import ErrorWindow


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_only_what_is_the_nodes_own_fault_is_an_error() -> None:
    window = ErrorWindow(clock=Clock())
    assert (window.rate, window.sample) == (0.0, "")
    for status in (200, 301, 400, 401, 403, 404, 429, 499):
        window.answered(status)
    window.raised(ValueError("a mistake"))
    assert (window.rate, window.sample) == (0.0, "")
    for status in (500, 502, 503):
        window.answered(status, "one")
    window.raised(httpx2.ReadTimeout("secret"), "two")
    window.raised(httpx2.ConnectError("secret"), "two")
    window.raised(TimeoutError(), "two")
    window.raised(ConnectionResetError())
    assert window.rate == 7 / 16
    assert window.sample == "ConnectionResetError"


def test_errors_are_forgotten_after_a_minute() -> None:
    clock = Clock()
    window = ErrorWindow(clock=clock)
    window.failed("broke")
    clock.now += 59
    window.answered(200)
    assert (window.rate, window.sample) == (0.5, "broke")
    clock.now += 1
    assert (window.rate, window.sample) == (0.0, "")
    clock.now += 60
    assert window.rate == 0.0


def test_a_sample_is_of_the_latest_and_not_too_long() -> None:
    window = ErrorWindow()
    window.failed("first")
    window.failed("x" * 10_000)
    assert set(window.sample) == {"x"}
    assert len(window.sample) == 300
