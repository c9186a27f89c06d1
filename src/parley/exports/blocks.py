"""Markdown as data: what a typesetter needs to know of it, and nothing that it could take for a command.

A block or a piece of a line is a JSON object whose `t` says what it is; plain words are strings.
"""

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from parley.exports.parsing import NOTE, OverBudget, budgeted, environment
from parley.exports.words import NESTING, is_web, kept

Node = dict[str, object] | str

DEEPEST = 12
"""Whatever is nested deeper is flattened to its words."""
LONGEST = 40
"""A word that is longer may be broken, so that it stays on the page."""

_LONG = re.compile(rf"\S{{{LONGEST}}}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BREAK = "\u200b"
_SPANS = {"strong": "b", "em": "i", "s": "s"}

_parser = budgeted(MarkdownIt("commonmark", {"html": False, "maxNesting": NESTING}).enable(["table", "strikethrough"]))


def blocks_of(markdown: str, *, breaks: bool = False) -> list[Node]:
    """`breaks`: a line ends where it ends, as people mean it who write."""
    try:
        tokens = _parser.parse(kept(markdown), environment(markdown))
    except OverBudget:
        return [{"t": "p", "c": [{"t": "i", "c": [NOTE]}]}, code(markdown)]
    for child in (child for token in tokens for child in token.children or () if breaks):
        child.type = "hardbreak" if child.type == "softbreak" else child.type
    return list(_blocks(SyntaxTreeNode(tokens), 0))


def words(text: str) -> str:
    """Plain words that fit on a page."""
    return _LONG.sub(lambda found: found[0] + _BREAK, _CONTROL.sub("", text))


def code(text: str, language: str = "") -> Node:
    return {"t": "code", "s": words(text.rstrip("\n").expandtabs(4)), "lang": language}


def _blocks(node: SyntaxTreeNode, depth: int) -> Iterator[Node]:
    for child in node.children:
        if depth >= DEEPEST:
            yield {"t": "p", "c": [words(_flat(child))]}
        else:
            yield from _block(child, depth)


def _block(node: SyntaxTreeNode, depth: int) -> Iterator[Node]:
    match node.type:
        case "paragraph":
            yield {"t": "p", "c": list(_line(node, depth))}
        case "heading":
            yield {"t": "h", "n": int(node.tag[1]), "c": list(_line(node, depth))}
        case "fence" | "code_block":
            yield code(node.content, (node.info.split() or [""])[0])
        case "bullet_list":
            yield {"t": "ul", "c": [list(_blocks(item, depth + 1)) for item in node.children]}
        case "ordered_list":
            start = int(node.attrs.get("start", 1))
            yield {"t": "ol", "start": start, "c": [list(_blocks(item, depth + 1)) for item in node.children]}
        case "blockquote":
            yield {"t": "quote", "c": list(_blocks(node, depth + 1))}
        case "hr":
            yield {"t": "hr"}
        case "table":
            yield _table(node, depth)
        case _:
            yield {"t": "p", "c": [words(_flat(node))]}


def _table(node: SyntaxTreeNode, depth: int) -> Node:
    rows = [row for part in node.children for row in part.children]
    cells = [[list(_line(cell, depth)) for cell in row.children] for row in rows]
    styles = [str(cell.attrs.get("style", "")) for cell in rows[0].children]
    return {"t": "table", "align": [style.removeprefix("text-align:") or "left" for style in styles], "c": cells}


def _line(node: SyntaxTreeNode, depth: int) -> Iterator[Node]:
    """The pieces of the lines of a block."""
    for inline in node.children:
        for child in inline.children:
            yield _piece(child, depth)


def _piece(node: SyntaxTreeNode, depth: int) -> Node:
    if depth >= DEEPEST:
        return words(_flat(node))
    match node.type:
        case "text":
            return words(node.content)
        case "softbreak":
            return " "
        case "hardbreak":
            return {"t": "br"}
        case "code_inline":
            return {"t": "c", "s": words(node.content)}
        case "strong" | "em" | "s":
            return {"t": _SPANS[node.type], "c": [_piece(child, depth + 1) for child in node.children]}
        case "link":
            return _link(str(node.attrs.get("href", "")), [_piece(child, depth + 1) for child in node.children])
        case "image":
            return _link(str(node.attrs.get("src", "")), [words(node.content or "picture")])
        case _:
            return words(_flat(node))


def _link(url: str, said: list[Node]) -> Node:
    return {"t": "a", "u": url, "c": said} if is_web(url) else {"t": "span", "c": said}


def _flat(node: SyntaxTreeNode) -> str:
    if node.children:
        return " ".join(_flat(child) for child in node.children)
    return node.content if not node.is_root else ""
