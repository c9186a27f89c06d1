"""The HTTP server: JSON-RPC, SSE and the card are faces of Parley's."""

from parley.app import open_exchange, open_faces
from parley.cli.orgserver import serve_organisation

__all__ = ["open_exchange", "open_faces", "serve_organisation"]
