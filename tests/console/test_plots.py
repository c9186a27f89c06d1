"""Plots of the last hour."""

import re

import pytest

from parley.console.plots import HEIGHT, WIDTH, plotted

HOUR = 3_600_000


def test_points_lie_within_the_plot_and_go_from_left_to_right() -> None:
    plot = plotted("T", "ms", {"a": [(0, 1.0), (HOUR // 2, 30.0), (HOUR, 7.0)]}, HOUR)
    points = [tuple(map(float, one)) for one in re.findall(r"([\d.]+),([\d.]+)", plot.curves[0].path)]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert min(points, key=lambda point: point[1]) == points[1]
    assert plot.curves[0].latest == 7.0


def test_nothing_to_show_is_shown_as_nothing() -> None:
    assert plotted("T", "ms", {"a": []}, HOUR).empty


@pytest.mark.parametrize(("most", "top"), [(0.03, 0.05), (1.0, 1.0), (7.0, 10.0), (1400.0, 2000.0), (0.0, 0.1)])
def test_the_scale_ends_with_a_round_number(most: float, top: float) -> None:
    assert plotted("T", "ms", {"a": [(0, most)]}, HOUR).top == pytest.approx(top)
