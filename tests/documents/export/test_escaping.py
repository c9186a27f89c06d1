"""Markdown exports hold no raw HTML, and are otherwise what was written."""

import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from parley.documents.export import markdown as parsing
from parley.documents.export.markdown import contained, escaped, escaped_unparsed, hidden, is_harmless, plain

COMMONMARK = MarkdownIt("commonmark")
GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])
READERS = (COMMONMARK, GFM)
PIECES = st.sampled_from([
    "<script>alert(1)</script>", "<!-- hidden -->", "<img src=x onerror=alert(1)>", "<b>", "</b>", "<", ">", "\\", "`",
    "``", "```", "~~~", "\n", "\n\n", "    ", "\t", "- ", "> ", "1. ", "| ", " | ", "|---|---|", "[a](", "](", ")",
    "[x]: ", "<https://a.example>", "<a@b.example>", "javascript:alert(1)", "java&Tab;script:x", "[//]: # (hidden)",
    "<?php ?>", "<![CDATA[x]]>", "# ", "===", "text", " ", "<div>\n\nin</div>", "&lt;", "{=html}", "\r",
    "[^1]: note", "**",
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from flat(token.children or [])


def kinds(markdown: str, reader: MarkdownIt) -> set[str]:
    return {token.type for token in flat(reader.parse(markdown))}


def codes(markdown: str) -> list[str]:
    without = MarkdownIt("commonmark").enable("table").disable(["html_block", "html_inline"])
    return [one.content for one in flat(without.parse(markdown)) if one.type in ("fence", "code_block", "code_inline")]


def spans(markdown: str) -> list[str]:
    """Code spans with their lines."""
    return re.findall(r"`[^`]*\n[^`]*`", markdown)


@settings(max_examples=600, deadline=None)
@given(TEXTS)
@example("<div>\n```\n</div>\n<script>\n```")
@example("| a ` b | ` <b> ` |\n|---|---|\n| x | y |")
@example("\\<b> \\\\<b> `<b>` \\`<b>`")
@example("[a](<b> c)")
@example("\t<b>\n```")
@example("`\n<script>alert(1)</script>`")
def test_no_reader_finds_html(text: str) -> None:
    made = contained(text)
    for reader in READERS:
        assert not {"html_block", "html_inline"} & kinds(made, reader), made


@settings(max_examples=600, deadline=None)
@given(TEXTS)
def test_code_and_texts_without_html_stay_what_they_are(text: str) -> None:
    if contained(text).startswith("> "):
        return
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    if not any(one in text for one in ("|", "](<", "{=", "]:")) and not any("\n" in code for code in spans(normal)):
        assert codes(contained(text)) == codes(normal.strip("\n"))
    if not set("<#=[]{-") & set(text):
        assert contained(text) == normal.strip("\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!-- a secret -->", "&lt;!-- a secret -->"),
        ("a <b>c</b>", "a &lt;b>c&lt;/b>"),
        ("\\<b>", "&lt;b>"),
        ("1 < 2 and <- and <3", "1 < 2 and <- and <3"),
        ("<https://a.example/x?y=1> <me@a.example>", "<https://a.example/x?y=1> <me@a.example>"),
        ("<javascript:alert(1)>", "&lt;javascript:alert(1)>"),
        ("`<b>` and ``<i> ` x``", "`<b>` and ``<i> ` x``"),
        ("```html\n<b>\n```", "```html\n<b>\n```"),
        ("    <b>", "    <b>"),
        ("- x\n\n      <b>\n- `<i>` <i>", "- x\n\n      <b>\n- `<i>` &lt;i>"),
        ("[a](https://a.example) [b](/c#d)", "[a](https://a.example) [b](/c#d)"),
        ("[a](<my file.md>)", "[a](my%20file.md)"),
        ("[x]: <b>c\n    <b>", "[x]\\: &lt;b>c\n    &lt;b>"),
        ("[a](javascript:alert(1))", "[a]\\(javascript:alert(1))"),
        ("[a]( java&Tab;script&colon;x)", "[a]\\( java&Tab;script&colon;x)"),
        ("[//]: # (a secret)", "\\[//]: # (a secret)"),
        ("See [x].\n\n[x]: https://a.example", "See [x].\n\n[x]: https://a.example"),
        ("See [x].\n\n[x]: javascript:alert(1)", "See [x].\n\n\\[x]: javascript:alert(1)"),
        ("[^1]: a secret", "\\[^1]: a secret"),
        ("So[^1].\n\n[^1]: A note", "So[^1].\n\n[^1]: A note"),
        ("```{=html}\n<b>\n```", "```html\n<b>\n```"),
        ("| `<b>` | <b> |\n|---|---|", "| `<b>` | &lt;b> |\n|---|---|"),
    ],
)
def test_html_is_shown_and_markdown_kept(text: str, shown: str) -> None:
    assert contained(text) == shown


def test_titles_and_texts_that_are_not_parsed_hold_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COMMONMARK.render(plain("<b> &amp; {x}")) == "<p>&lt;b&gt; &amp;amp; {x}</p>\n"
    monkeypatch.setattr(parsing, "MAX_CPU_S", 0)
    assert contained("`<b>` <!-- x -->") == "> `&lt;b>` &lt;!-- x -->"


SCRIPTS = [
    "javascript:x", "JaVa\tscript:x", "&#106;avascript:x", "&Tab;" * 80 + "javascript:x", "data:text/html,x",
    "vbscript:x",
]  # fmt: skip


@pytest.mark.parametrize("target", SCRIPTS, ids=lambda one: one[:20])
def test_links_to_scripts_are_found(target: str) -> None:
    assert not is_harmless(target[:300])


REPEATED = [
    "<", "\\", "\\<", "`", "``` ` ", "](", "](<", "[x]: ", "<a", "<!--", "[^", "\\`", "<http://", "| ` |", "\n> <b>\n",
    "]( ", "<a@", "<a", "[[", "&Tab;",
]  # fmt: skip


@pytest.mark.parametrize("piece", REPEATED, ids=repr)
def test_the_time_grows_with_the_text_and_not_faster(piece: str) -> None:
    def seconds(count: int) -> float:
        lines, started = (piece * count).split("\n"), time.thread_time()
        tokens = [Token("inline", "", 0, map=[0, len(lines)])]
        escaped(lines, tokens)
        hidden(lines, tokens, {})
        escaped_unparsed(piece * count)
        return time.thread_time() - started

    small, large = seconds(10_000), seconds(80_000)
    assert large < max(16 * small, 0.5), (small, large)
