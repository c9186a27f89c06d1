"""Who asks at this face: a node, by its id and its token; or one of the principals that every face knows."""

from msgspec import Struct
from starlette.types import Scope

from parley.core.access import Principal, demand
from parley.core.access import Scope as Right
from parley.core.nodes import Node, check_id
from parley.engine.nodes import Nodes
from parley.errors import Forbidden, Unauthenticated
from parley.faces.http import header
from parley.security.credentials import Auth, bearer
from parley.security.nodes import admits, check_token

NODE = b"x-workspace-id"


class Caller(Struct, frozen=True):
    """Exactly one of the two."""

    principal: Principal | None = None
    node: Node | None = None

    @property
    def admin(self) -> bool:
        return self.principal is not None and self.principal.may("admin")

    def owns(self, node: str) -> bool:
        """Whether it may see all there is of a node."""
        return self.admin or (self.node is not None and self.node.id == node)


class Callers:
    def __init__(self, nodes: Nodes, auth: Auth) -> None:
        self._nodes = nodes
        self._auth: Auth = auth

    async def node(self, scope: Scope, id_: str) -> Node:
        """The node of this id, if it is the one that asks. One that was given no token yet is believed where nobody
        needs credentials, and by those who may do everything."""
        found = await self._nodes.store.get([id_])
        node = found[0] if found else None
        if node is not None and not node.removed and not node.tokens and self._trusted(scope):
            return node
        check_token(node, token_of(scope))
        assert node is not None
        return node

    async def asking(self, scope: Scope, own: str | None = None) -> Caller:
        """`own` is the node that the request is about: its token is enough to speak for it."""
        if (claimed := header(scope, NODE)) is not None:
            return Caller(node=await self.node(scope, check_id(claimed)))
        principal: Principal | None = scope["principal"]
        if principal is not None:
            demand(principal, "read")
            return Caller(principal)
        if own is None:
            raise Unauthenticated("this needs credentials, or X-Workspace-ID and a workspace auth token")
        return Caller(node=await self.node(scope, own))

    async def admitted(self, scope: Scope, node: Node | None) -> None:
        """Whether somebody may register a node that has no token."""
        if self._trusted(scope) or (node is not None and admits(node, token_of(scope))):
            return
        check_token(node, token_of(scope))

    def _trusted(self, scope: Scope) -> bool:
        principal: Principal | None = scope["principal"]
        return self._auth == "none" or (principal is not None and principal.may("admin"))


def by_principal(scope: Scope, right: Right) -> Principal:
    """What no node may do."""
    principal: Principal | None = scope["principal"]
    if principal is None:
        raise Unauthenticated("this needs credentials")
    demand(principal, right)
    return principal


def owner_of(caller: Caller, node: str) -> None:
    if not caller.owns(node):
        raise Forbidden("this needs the workspace's own auth token, or the scope admin")


def token_of(scope: Scope) -> str | None:
    authorization = header(scope, b"authorization")
    return None if authorization is None else bearer(authorization)
