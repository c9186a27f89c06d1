"""Node tokens: shown once, kept as a hash, void with their node. And the token that admits a node the first time."""

import hashlib
import hmac
import secrets

from parley.core.nodes import Node, NodeToken
from parley.errors import Unauthenticated

PREFIX_LENGTH = 8


def new_token(now: int) -> tuple[str, NodeToken]:
    """32 random bytes as 43 letters, and what is kept of them."""
    text = secrets.token_urlsafe(32)
    return text, NodeToken(text[:PREFIX_LENGTH], digest(text), now)


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def check_token(node: Node | None, token: str | None) -> None:
    """Whether a token is one of a node's; nobody learns whether there is such a node."""
    if not token:
        raise Unauthenticated("missing workspace auth token")
    shown = digest(token)
    held = () if node is None or node.removed else node.tokens
    if not any(hmac.compare_digest(one.digest, shown) for one in held):
        raise Unauthenticated("invalid workspace auth token")


def admits(node: Node, token: str | None) -> bool:
    """Whether a token is the one that came with the node when it was created, and was not used yet."""
    return bool(token and node.admission) and hmac.compare_digest(node.admission, digest(token or ""))
