"""Anybody's card is read and checked."""

from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.cards import NoCard, check, inspect
from parley.testing.servers import Server
from tests.cli.test_cli import parley
from tests.faces.conftest import server

__all__ = ["server"]

GOOD: dict[str, Any] = {
    "name": "A", "description": "B", "version": "1", "capabilities": {}, "defaultInputModes": ["text/plain"],
    "defaultOutputModes": [], "skills": [{"id": "a", "name": "a", "description": "a", "tags": []}],
    "supportedInterfaces": [{"url": "https://a.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
}  # fmt: skip
OLD = {
    **{name: value for name, value in GOOD.items() if name != "supportedInterfaces"},
    "url": "https://a.example", "protocolVersion": "0.3.0",
}  # fmt: skip

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": ""}, "name"),
    "no address": ({"supportedInterfaces": []}, "supportedInterfaces"),
    "an interface that is none": ({"supportedInterfaces": [1]}, "supportedInterfaces[0]"),
    "a binding nobody knows": (
        {"supportedInterfaces": [{"url": "https://a", "protocolBinding": "SOAP", "protocolVersion": "1.0"}]},
        "supportedInterfaces[0].protocolBinding",
    ),
    "a relative address": (
        {"supportedInterfaces": [{"url": "/a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
        "supportedInterfaces[0].url",
    ),
    "no version": (
        {"supportedInterfaces": [{"url": "https://a", "protocolBinding": "JSONRPC", "protocolVersion": "x"}]},
        "supportedInterfaces[0].protocolVersion",
    ),
    "no capabilities": ({"capabilities": None}, "capabilities"),
    "modes of numbers": ({"defaultInputModes": [1]}, "defaultInputModes"),
    "no skills": ({"skills": None}, "skills"),
    "a skill without tags": ({"skills": [{"id": "a", "name": "a", "description": "a"}]}, "skills[0].tags"),
    "a scheme that is not declared": (
        {"securityRequirements": [{"schemes": {"x": {"list": []}}}]}, "securityRequirements"),
    "an old interface without a transport": (
        {"url": "https://a", "protocolVersion": "0.3", "additionalInterfaces": [{"url": "https://a"}]},
        "additionalInterfaces[0].transport",
    ),
}  # fmt: skip


@pytest.mark.parametrize("card", [GOOD, OLD], ids=["1.0", "0.3"])
def test_a_good_card_has_no_faults(card: dict[str, Any]) -> None:
    assert list(check(card)) == []


@pytest.mark.parametrize("case", WRONG)
def test_each_fault_names_its_field(case: str) -> None:
    change, field = WRONG[case]
    errors = [one.field for one in check({**GOOD, **change}) if one.level == "error"]
    assert errors == [field]


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(GOOD)), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from([*GOOD, "url", "security", "signatures", "additionalInterfaces"]), VALUES))
def test_any_object_can_be_checked(card: dict[str, Any]) -> None:
    assert all(finding.message for finding in check(card, "https://a.example"))


async def test_our_own_card_is_valid_and_its_signatures_hold(server: Server) -> None:
    for address in (server.agent("echo"), server.agent("echo") + "/.well-known/agent.json", server.url):
        report = await inspect(address)
        assert report.findings == []
        assert [one.covers for one in report.verified] == ["1.0", "document"]
    with pytest.raises(NoCard, match="404"):
        await inspect(server.agent("nobody"))
    with pytest.raises(NoCard, match="cannot be reached"):
        await inspect("http://127.0.0.1:9")


async def test_a_changed_card_is_found_out(server: Server) -> None:
    card = (await inspect(server.agent("echo"))).card

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("jwks.json"):
            async with httpx2.AsyncClient() as http:
                return httpx2.Response(200, content=(await http.get(server.url + request.url.path)).content)
        return httpx2.Response(200, json={**card, "description": "Something else."})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        report = await inspect(server.agent("echo"), http=http)
    assert (report.verified, report.valid) == ([], False)
    assert report.findings[-1].message == "none is valid."


@pytest.mark.slow
async def test_the_command_shows_a_card(server: Server) -> None:
    shown = await parley("card", "echo", "--url", server.url)
    assert shown.code == 0, shown.err
    assert "signed" in shown.out
    assert "valid" in shown.out
    lost = await parley("card", "nobody", "--url", server.url)
    assert lost.code == 1
    assert "404" in lost.err
