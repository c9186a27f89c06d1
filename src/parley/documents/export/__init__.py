"""Exports of a conversation as JSON, Markdown, HTML or PDF."""

from collections.abc import Callable, Mapping

from parley.documents.export.html import HtmlRenderer
from parley.documents.export.json_lines import JsonRenderer
from parley.documents.export.markdown import MarkdownRenderer
from parley.documents.export.pdf import PdfRenderer
from parley.documents.export.renderer import Renderer

RENDERERS: Mapping[str, Callable[[], Renderer]] = {
    "json": JsonRenderer,
    "markdown": MarkdownRenderer,
    "html": HtmlRenderer,
    "pdf": PdfRenderer,
}
