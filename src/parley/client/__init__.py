"""Clients of A2A servers and of the runtime control plane."""

from parley.client.a2a import (
    UNSUPPORTED,
    Client,
    Content,
    Json,
    OnRetry,
    RemoteError,
    SendAnswer,
    Unreachable,
    UnreadableAnswer,
    message,
)
from parley.client.control import Owner, RuntimeClient, RuntimeRefused, RuntimeUnreachable

__all__ = [
    "UNSUPPORTED",
    "Client",
    "Content",
    "Json",
    "OnRetry",
    "Owner",
    "RemoteError",
    "RuntimeClient",
    "RuntimeRefused",
    "RuntimeUnreachable",
    "SendAnswer",
    "Unreachable",
    "UnreadableAnswer",
    "message",
]
