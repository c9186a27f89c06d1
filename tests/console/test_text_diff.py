"""Differences between two texts."""

from hypothesis import given
from hypothesis import strategies as st

from parley.console.text_diff import DiffLine, counted, difference


def shown(lines: list[DiffLine]) -> list[str]:
    signs = {"same": " ", "gone": "-", "come": "+", "gap": "~"}
    return [signs[line.kind] + "".join(piece.text for piece in line.pieces) for line in lines]


def test_equal_texts_do_not_differ() -> None:
    assert difference("a\nb", "a\nb\n") == []


def test_a_changed_line_shows_which_words_changed() -> None:
    lines = difference("bring bread\nand wine", "bring warm bread\nand wine")
    assert shown(lines) == ["-bring bread", "+bring warm bread", " and wine"]
    assert [piece.text for piece in lines[1].pieces if piece.changed] == ["warm "]
    assert counted(lines) == (1, 1)


def test_lines_far_from_a_change_are_left_out() -> None:
    text = "\n".join(map(str, range(20)))
    lines = difference(text, text.replace("10", "ten"))
    assert [line.skipped for line in lines if line.kind == "gap"] == [7, 6]
    assert (lines[4].before, lines[5].after) == (11, 11)


def test_lines_without_anything_in_common_are_not_taken_apart() -> None:
    lines = difference("one two three", "vier fuenf sechs sieben")
    assert not any(piece.changed for line in lines for piece in line.pieces)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_both_texts_can_be_read_from_the_difference(old: list[str], new: list[str]) -> None:
    lines = difference("\n".join(old), "\n".join(new), context=100)
    if not lines:
        assert old == new
        return
    text = {kind: ["".join(one.text for one in line.pieces) for line in lines if line.kind in ("same", kind)]
            for kind in ("gone", "come")}  # fmt: skip
    assert text == {"gone": old, "come": new}


def test_a_very_long_change_is_shown_whole_and_at_once() -> None:
    old, new = ("\n".join(f"{side}{number}" for number in range(5000)) for side in "ab")
    assert counted(difference(old, new)) == (5000, 5000)


def test_words_are_compared_only_as_long_as_it_does_not_take_too_long() -> None:
    one = "\n".join("a b " * 200 + str(line) for line in range(1500))
    two = "\n".join("b a " * 200 + str(line) for line in range(1500))
    lines = difference(one, two)
    assert counted(lines) == (1500, 1500)
    gone = [line for line in lines if line.kind == "gone"]
    assert len(gone[0].pieces) > 1
    assert len(gone[-1].pieces) == 1
