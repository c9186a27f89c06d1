"""HTTP server: Parley's faces serve JSON-RPC, SSE and the card."""

from parley.app import open_exchange, open_faces
from parley.cli.organisations import serve_organisation

__all__ = ["open_exchange", "open_faces", "serve_organisation"]
