"""Plots of the last hour as SVG paths."""

from collections.abc import Sequence

from msgspec import Struct

from parley.telemetry.metrics import HOUR_MS, DurationStats, per_minute, quantile

WIDTH, HEIGHT = 400.0, 150.0
LEFT, BOTTOM, TOP = 44.0, 22.0, 10.0

Point = tuple[int, float]
"""Time in ms, and value."""


class Curve(Struct, frozen=True):
    name: str
    path: str
    latest: float | None
    """Value of the newest point."""


class Plot(Struct, frozen=True):
    title: str
    unit: str
    top: float
    """The value at the upper edge."""
    curves: list[Curve]
    marks: list[tuple[float, float]]
    """Labels of the vertical axis: value and y position."""
    hours: list[tuple[str, float]]
    """Labels of the time axis: text and x position."""
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    base: float = HEIGHT - BOTTOM

    @property
    def empty(self) -> bool:
        return not any(curve.path for curve in self.curves)


def rates(spans: Sequence[DurationStats], now: int) -> Plot:
    answers: list[Point] = [(one.end, per_minute(one.answers, one)) for one in spans]
    turns: list[Point] = [(one.end, per_minute(one.turns, one)) for one in spans]
    return plotted("Throughput", "per minute", {"requests": answers, "turns": turns}, now)


def latencies(spans: Sequence[DurationStats], now: int) -> list[Plot]:
    """Median and 95th percentile of the duration of requests and of turns."""
    said = (
        ("Request duration", [(one.end, one.answers) for one in spans]),
        ("Turn duration", [(one.end, one.turns) for one in spans]),
    )
    return [
        plotted(
            title,
            "ms",
            {
                name: [(at, found * 1000) for at, times in counted if (found := quantile(times, share)) is not None]
                for name, share in (("median", 0.5), ("p95", 0.95))
            },
            now,
        )
        for title, counted in said
    ]


def plotted(title: str, unit: str, series: dict[str, list[Point]], now: int) -> Plot:
    top = _nice(max((value for points in series.values() for _, value in points), default=1.0))
    base, right = HEIGHT - BOTTOM, WIDTH - 4

    def x(at: int) -> float:
        return LEFT + (right - LEFT) * max(0.0, 1 - (now - at) / HOUR_MS)

    def y(value: float) -> float:
        return base - (base - TOP) * value / top

    curves = [
        Curve(
            name,
            " ".join(f"{'L' if place else 'M'}{x(at):.1f},{y(value):.1f}" for place, (at, value) in enumerate(points)),
            points[-1][1] if points else None,
        )
        for name, points in series.items()
    ]
    hours = [(f"−{minutes} min" if minutes else "now", x(now - minutes * 60_000)) for minutes in (60, 45, 30, 15, 0)]
    return Plot(title, unit, top, curves, [(value, y(value)) for value in (0.0, top / 2, top)], hours)


def _nice(value: float) -> float:
    """The next round number that is not smaller than `value`."""
    power = 1.0
    while power < value:
        power *= 10
    while power / 10 >= value > 0:
        power /= 10
    return next((power * part for part in (0.1, 0.2, 0.5, 1.0) if power * part >= value), power)
