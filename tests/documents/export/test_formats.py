"""Exports of a conversation in every format."""

import re
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec import Raw

from parley import extras
from parley.documents.export import RENDERERS, pdf
from parley.documents.export.html import rendered
from parley.documents.export.markdown import contained
from parley.documents.export.pdf import blocks_of
from parley.documents.export.renderer import Cover, ExportedDocument, Renderer, fenced
from parley.documents.rules import Conversation, Document, Version
from parley.errors import ExportFailed, Unsupported
from parley.ids import ConversationId, RunId
from parley.runs.rules.transcript import Role, TranscriptMessage

AT = 1_794_000_000_000
COVER = Cover("export-1", Conversation("user:ann", ConversationId("talk"), "painter", AT), "Pain<ter>", AT + 10**8)
EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> [a](javascript:alert(1)) [b](data:text/html,x) "
    '![p](https://example.com/p.png) [c](https://example.com "t") #include "x" $a$ #panic("no") \\ @ref <lab>\x00\x1b'
)


def said(number: int, role: Role, content: str, metadata: bytes = b"{}") -> TranscriptMessage:
    return TranscriptMessage(f"r.{number}", role, content, AT + number * 60_000, RunId("r"), Raw(metadata))


def sheet(format_: str = "markdown", content: str = "# Green\n\nText") -> ExportedDocument:
    document = Document("d", "user:ann", "talk", "plan", "painter", "A *plan*", "document", "v2", 2, 2, AT, AT)
    versions = [
        Version(f"v{number}", "d", number, format_, "manual_edit", Raw(b"{}"), AT, "") for number in (2, 1)
    ]  # fmt: skip
    return ExportedDocument(document, versions[0], content, versions)


def written(renderer: Renderer, messages: Sequence[TranscriptMessage], *sheets: ExportedDocument) -> str:
    told = "".join(renderer.message(one) for one in messages)
    made = "".join(renderer.document(one) for one in sheets)
    return f"{renderer.opening(COVER)}{told}{made}{renderer.closing(len(messages))}"


def bound(renderer: Renderer, folder: Path, messages: Sequence[TranscriptMessage], *sheets: ExportedDocument) -> bytes:
    path = folder / "written"
    path.write_text(written(renderer, messages, *sheets), "utf-8")
    return renderer.bound(path).path.read_bytes()


class Page(HTMLParser):
    """The elements and links of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def test_json_is_one_document_and_a_message_a_line() -> None:
    attached = b'{"attachments":[{"kind":"file","name":"a"}]}'
    messages = [said(1, "user", "one\ntwo", attached), said(2, "system", EVIL)]
    for sheets in ((), (sheet(), sheet("json", "{}"))):
        text = written(RENDERERS["json"](), messages, *sheets)
        talk = msgspec.json.decode(text)
        assert [one["content"] for one in talk["messages"]] == ["one\ntwo", EVIL]
        assert talk["messages"][0]["metadata"]["attachments"] == [{"kind": "file", "name": "a"}]
        assert len(talk.get("artifacts", [])) == len(sheets)
    lines = written(RENDERERS["json"](), messages).split("\n")
    assert [msgspec.json.decode(line.rstrip(","))["id"] for line in lines[3:5]] == ["r.1", "r.2"]
    assert msgspec.json.decode(written(RENDERERS["json"](), []))["messages"] == []


def test_a_message_of_markdown_keeps_to_itself() -> None:
    assert contained("# One\n\ntext\n\nTwo\n---\n\n###### Six") == "### One\n\ntext\n\n#### Two\n\n###### Six"
    assert contained("```\n# code\n```") == "```\n# code\n```"
    for open_ended in ("```\ncode", "~~~\n"):
        assert all(line.startswith(">") for line in contained(open_ended).split("\n"))
    assert fenced("a ```` b", "python").startswith("`````python\n")


@given(st.text(alphabet="`~#<!->*_= \n\tab|[]():", max_size=60))
@settings(max_examples=300)
def test_whatever_is_said_the_next_heading_is_one(text: str) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(f"{contained(text)}\n\n---\n\n## Next\n")
    assert [token.type for token in tokens[-4:]] == ["hr", "heading_open", "inline", "heading_close"]
    assert tokens[-2].content == "Next"


def test_a_page_has_no_scripts_and_loads_nothing() -> None:
    about = b'{"model":"<m>","attachments":[{"kind":"link","url":"javascript:x"},{"kind":"link","url":"https://b"}]}'
    messages = [said(1, "user", EVIL, about), said(2, "assistant", EVIL, about), said(2000, "system", EVIL)]
    page = Page(text := written(RENDERERS["html"](), messages, sheet(content=EVIL), sheet("html", EVIL)))
    assert not {"script", "img", "iframe", "object", "link", "form"} & set(page.tags)
    assert not [name for name in page.names if name.startswith("on")]
    assert set(page.links) == {"https://example.com/p.png", "https://example.com", "https://b"}
    assert "url(" not in text
    assert "@import" not in text
    assert page.tags.count("article") == 4
    assert text.count('class="day"') == 2


@given(st.text(max_size=80))
@settings(max_examples=200)
def test_whatever_is_said_it_is_safe(text: str) -> None:
    page = Page(rendered(text))
    assert all(
        link.lower().startswith(("http:", "https:", "mailto:", "#", "/")) or ":" not in link for link in page.links
    )
    assert not {"script", "img", "style"} & set(page.tags)


def test_lines_of_people_end_where_they_end() -> None:
    assert rendered("a\nb", breaks=True).count("<br>") == 1
    assert blocks_of("a\nb", breaks=True) == [{"t": "p", "c": ["a", {"t": "br"}, "b"]}]
    assert blocks_of("a\nb") == [{"t": "p", "c": ["a", " ", "b"]}]


def test_what_is_nested_too_deep_becomes_plain_words() -> None:
    for deep in (">" * 200 + " deep", "- " * 100 + "deep", "*" * 150 + "deep" + "*" * 150, "[" * 500 + "deep"):
        assert "deep" in msgspec.json.encode(blocks_of(deep)).decode()
        assert "deep" in rendered(deep)


MARKDOWN = """# Plan

Some **bold**, *soft*, ~~gone~~ `code` and a [link](https://example.com).

1. one
   - a
   - b
2. two

> quoted

```python
print("x")
```

| a | b |
|:--|--:|
| 1 | 2 |

---
"""


def test_a_pdf_takes_every_word_for_a_word(tmp_path: Path) -> None:
    deep = ">" * 100 + " deep " + "*" * 90 + "x" + "*" * 90
    talk = [said(1, "user", EVIL), said(2, "assistant", MARKDOWN), said(3, "system", EVIL), said(4, "assistant", deep)]
    made = bound(RENDERERS["pdf"](), tmp_path, talk, sheet(content=EVIL), sheet("python", "x = 1"))
    assert made.startswith(b"%PDF-")
    assert re.search(rb"export-1", made)


def test_a_pdf_that_takes_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MOST_BYTES", 64 << 20)
    with pytest.raises(ExportFailed, match="too long"):
        bound(RENDERERS["pdf"](), tmp_path, [said(1, "user", "hi")])


def test_a_server_without_a_typesetter_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match=r"parley-a2a\[pdf\]"):
        RENDERERS["pdf"]().opening(COVER)


def test_a_typesetter_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(pdf, "run", slow)
    with pytest.raises(ExportFailed):
        bound(RENDERERS["pdf"](), tmp_path, [said(1, "user", "hi")])
