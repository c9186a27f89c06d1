"""Who may call a node: peers, by the token of their pair; and its operator, by an API key of the node's own."""

from typing import Literal

from parley.core.access import Principal
from parley.node.verifying import PairVerifier
from parley.security.credentials import Credentials, bearer
from parley.security.keys import PREFIX


class PairEntrance:
    """A peer's tasks are its own: the principal is the node that calls."""

    auth: Literal["required"] = "required"

    def __init__(self, verifier: PairVerifier, keys: Credentials) -> None:
        self._verifier = verifier
        self._keys = keys

    async def principal(self, authorization: str | None, api_key: str | None) -> Principal | None:
        if api_key is None and authorization is None:
            return None
        shown = api_key.strip() if api_key is not None else bearer((authorization or "").strip())
        if api_key is not None or shown.startswith(PREFIX):
            return await self._keys.principal_for(shown)
        return Principal("node", (await self._verifier.check(shown)).sub)
