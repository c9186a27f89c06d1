"""HTTP code that all faces share: server, requests, identity, errors, server-sent events."""
