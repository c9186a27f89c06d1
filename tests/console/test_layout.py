"""Layout of graphs."""

import re
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from parley.console.layout import GraphBox, GraphLayout, layered

DIAMOND = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


def apart(one: GraphBox, two: GraphBox) -> bool:
    beside = one.x + one.width <= two.x or two.x + two.width <= one.x
    return beside or one.y + one.height <= two.y or two.y + two.height <= one.y


def fits(graph: GraphLayout) -> bool:
    boxes = graph.boxes.values()
    inside = all(
        box.x >= 0 and box.x + box.width <= graph.width and box.y + box.height <= graph.height for box in boxes
    )
    return inside and all(apart(one, two) for one, two in combinations(boxes, 2))


def test_a_diamond_is_a_diamond() -> None:
    graph = layered("abcd", DIAMOND)
    a, b, c, d = (graph.boxes[name] for name in "abcd")
    assert a.y < b.y == c.y < d.y
    assert a.middle == d.middle == (b.middle + c.middle) / 2
    assert [(line.start, line.to) for line in graph.lines] == DIAMOND


def test_nothing_takes_no_room_and_one_alone_stands_by_itself() -> None:
    assert layered([], []).boxes == {}
    assert fits(layered(["a"], [("a", "a"), ("a", "nobody")]))
    assert layered(["a"], [("a", "a")]).lines == []


def test_a_long_line_goes_around_the_box_on_its_way() -> None:
    graph = layered("abc", [("a", "b"), ("b", "c"), ("a", "c")])
    box = graph.boxes["b"]
    (path,) = [line.path for line in graph.lines if line.to == "c" and line.start == "a"]
    through = [float(x) for x in re.findall(r"([\d.]+),[\d.]+ V", path)]
    assert through
    assert all(x < box.x or x > box.x + box.width for x in through)


def test_a_circle_is_opened_where_it_begins() -> None:
    graph = layered("abc", [("a", "b"), ("b", "c"), ("c", "a")])
    assert [(line.start, line.to) for line in graph.lines] == [("a", "b"), ("b", "c")]


def test_lines_that_need_not_cross_do_not() -> None:
    graph = layered(["x", "y", "1", "2"], [("x", "2"), ("y", "1")])
    boxes = graph.boxes
    assert (boxes["x"].middle < boxes["y"].middle) == (boxes["2"].middle < boxes["1"].middle)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")), max_size=20))
def test_boxes_never_touch_and_lines_lead_down(edges: list[tuple[str, str]]) -> None:
    graph = layered("abcdefgh", edges)
    assert fits(graph)
    assert all(graph.boxes[line.start].y < graph.boxes[line.to].y for line in graph.lines)
