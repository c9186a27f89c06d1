"""What msgspec says about a value that does not fit, in words for whoever sent it. What they sent is not repeated."""

import re
from typing import NamedTuple

_PLACE = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_SENTENCES = [
    (re.compile(r"Object missing required field `(\w+)`"), "is required"),
    (re.compile(r"Expected `array` of length >= (\d+)"), "must have at least {} entries"),
    (re.compile(r"Expected `array` of length <= (\d+)"), "must have at most {} entries"),
    (re.compile(r"Expected `\w+` of length >= 1"), "is required"),
    (re.compile(r"Expected `\w+` of length >= (\d+)"), "must have at least {} characters"),
    (re.compile(r"Expected `\w+` of length <= (\d+)"), "must have at most {} characters"),
    (re.compile(r"Expected `(?:int|float)` >= ([\d.]+)"), "must be at least {}"),
    (re.compile(r"Expected `(?:int|float)` <= ([\d.]+)"), "must be at most {}"),
    (re.compile(r"Expected `str` matching regex .*"), "must not contain control characters"),
    (re.compile(r"Expected `str.*, got .*"), "must be a string"),
    (re.compile(r"Expected `object.*, got .*"), "must be an object"),
    (re.compile(r"Expected `array.*, got .*"), "must be an array"),
    (re.compile(r"Expected `bool.*, got .*"), "must be true or false"),
    (re.compile(r"Expected `int.*, got .*"), "must be a whole number"),
    (re.compile(r"Expected `float.*, got .*"), "must be a number"),
    (re.compile(r"Invalid enum value .*", re.DOTALL), "is not one of the values that are known"),
]


class Flaw(NamedTuple):
    """Where in a request something is wrong (empty: in all of it), and what."""

    place: str
    sentence: str


def flaw_of(message: str) -> Flaw:
    found = _PLACE.fullmatch(message)
    words, place = (found[1], found[2] or "") if found else (message, "")
    for pattern, sentence in _SENTENCES:
        if match := pattern.fullmatch(words):
            groups = match.groups()
            if sentence == "is required" and groups:
                place = f"{place}.{groups[0]}" if place else groups[0]
            return Flaw(place, sentence.format(*groups))
    return Flaw(place, "is invalid")
