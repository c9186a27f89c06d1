"""A call of a tool as somebody asks for it, and as it stands when nothing is wrong with it."""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.core.access import Principal
from parley.core.canonical import Fields, Json, stable_hash
from parley.core.policy import Evaluation, Figures, Policy, evaluate, policy_problems
from parley.core.sanitising import sanitised
from parley.core.tools import Manifest, Mode, Operation, Pack, manifest_of, refused, request_of
from parley.engine.executions import Execution
from parley.engine.ports import Place, ToolPack
from parley.errors import ContextMismatch, Invalid, UnknownToolPack
from parley.ids import is_id, new_id


class ToolAsk(Struct, frozen=True):
    """What a caller wants: `request` carried out (or only decided about: `replay`), under a manifest and a policy.

    `user_id` is whom the caller says it speaks for, beside what `request` says; the principal is whom we believe.
    """

    principal: Principal
    tool_pack: str
    manifest: Fields
    request: Fields
    policy: Fields = {}
    run_id: str | None = None
    thread_id: str | None = None
    mode: Mode = "execute"
    user_id: Json = None


class Asked(Struct, frozen=True):
    """A call in which nothing is wrong."""

    principal: Principal
    pack: ToolPack
    manifest: Manifest
    request: Fields
    policy: Policy
    run: str
    thread: str
    request_hash: str
    ask_hash: str
    agent: str = ""
    limit_s: float | None = None
    """How long it may take, where its caller says so."""

    @property
    def rules(self) -> Pack:
        return self.pack.rules

    @property
    def tool(self) -> str:
        return str(self.request["operation"])

    @property
    def operation(self) -> Operation:
        return self.rules.operations[self.tool]

    @property
    def call(self) -> str:
        return str(self.request.get("tool_call_id", ""))

    @property
    def place(self) -> Place:
        """Where it is remembered: nobody finds another's. No id of a run has a space in it."""
        return str(self.principal), f"{self.run} {self.call}"

    @property
    def given(self) -> Json:
        """What its tool is told."""
        return self.request.get(self.rules.given) if self.rules.given else self.request

    @property
    def authorization(self) -> str:
        """Under which its cost is counted; empty when it is not."""
        return self.policy.authorization if self.rules.budgeted else ""

    @property
    def account(self) -> Place:
        return str(self.principal), self.policy.authorization

    @property
    def unapproved(self) -> bool:
        """A write that nobody approved."""
        approved = self.request.get("write_approved") is True or self.policy.write_approved
        return self.operation.writes and not approved

    def evaluated(self, figures: Figures, now: int) -> Evaluation:
        denied = not self.manifest.active or (self.unapproved and self.manifest.enforces_writes)
        return evaluate(self.policy, figures, now, denied=denied)

    def execution(self, now: int, slack_s: float) -> Execution:
        named = bool(self.rules.given)
        return Execution(
            self.call, self.rules.name, self.tool, self.manifest.integration, self.request_hash, self.ask_hash,
            self.authorization, now, "", self.run,
            lease_ms=0 if self.limit_s is None else int((self.limit_s + slack_s) * 1000),
            agent=self.agent, conversation=self.thread if named else "",
            input=Raw(msgspec.json.encode(sanitised(self.given, personal=False))) if named else UNSET,
        )  # fmt: skip


def asked(ask: ToolAsk, packs: Mapping[str, ToolPack]) -> Asked:
    """The checks of the contract, in its order: who, which pack, the manifest, the request."""
    _check_speaker(ask.principal, ask.user_id, ask.request.get("user_id"))
    pack = packs.get(ask.tool_pack)
    if pack is None:
        raise UnknownToolPack(f"tool_pack is not supported: {ask.tool_pack}")
    manifest = manifest_of(pack.rules, ask.manifest)
    request = request_of(pack.rules, manifest, _in_context(ask))
    if problems := [*_place_problems(request), *policy_problems(ask.policy)]:
        raise refused(*problems)
    if ask.mode == "execute" and request.get("tool_call_id") is None:
        request = {**request, "tool_call_id": f"call_{new_id()}"}
    hashes = _hash([ask.tool_pack, request]), _hash([ask.tool_pack, request, ask.manifest, ask.policy])
    policy = Policy(ask.policy, pack.rules.policy_id)
    return Asked(ask.principal, pack, manifest, request, policy, *_where(request), *hashes)


def _check_speaker(principal: Principal, *claims: Json) -> None:
    for claim in claims:
        if claim is not None and (principal.kind != "user" or str(claim) != principal.name):
            raise ContextMismatch("request context does not match authenticated principal")


def _in_context(ask: ToolAsk) -> Fields:
    """The request with the run, the thread and the user it does not name itself."""
    name = ask.principal.name if ask.principal.kind == "user" else ""
    user: Json = int(name) if name.isdecimal() and name.isascii() else name or None
    context: Fields = {"run_id": ask.run_id, "thread_id": ask.thread_id, "user_id": user}
    _check_same(ask.request, "run_id", ask.run_id)
    _check_same(ask.request, "thread_id", ask.thread_id)
    missing = {key: one for key, one in context.items() if one is not None and ask.request.get(key) is None}
    return {**ask.request, **missing}


def _check_same(request: Fields, name: str, outer: str | None) -> None:
    inner = request.get(name)
    if inner is not None and outer is not None and inner != outer:
        raise ContextMismatch(f"request.{name} does not match {name}")


def _place_problems(request: Fields) -> list[str]:
    """Ids that could not be stored or shown again."""
    given = {name: request.get(name) for name in ("run_id", "thread_id")}
    wrong = [name for name, one in given.items() if one is not None and not (isinstance(one, str) and is_id(one))]
    return [f"{name} must have 1 to 128 letters, digits or ._:@/+=~-" for name in wrong]


def _where(request: Fields) -> tuple[str, str]:
    return str(request.get("run_id") or ""), str(request.get("thread_id") or "")


def _hash(value: Json) -> str:
    try:
        return stable_hash(value)
    except Invalid as error:
        raise refused(error.message) from None
