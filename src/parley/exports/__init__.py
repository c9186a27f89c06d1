"""A conversation in the formats in which people carry it away."""

from collections.abc import Callable, Mapping

from parley.engine.export import Renderer
from parley.exports.html import HtmlRenderer
from parley.exports.jsons import JsonRenderer
from parley.exports.markdown import MarkdownRenderer
from parley.exports.pdf import PdfRenderer

RENDERERS: Mapping[str, Callable[[], Renderer]] = {
    "json": JsonRenderer,
    "markdown": MarkdownRenderer,
    "html": HtmlRenderer,
    "pdf": PdfRenderer,
}
