"""HTML pages shown when a browser opens the address of the server or of an agent."""

import json
from collections.abc import Sequence
from typing import Any

from parley.console.responses import GUARDED, render
from parley.http.requests import Headers
from parley.runs.rules.agents import Agent


class AddressPages:
    """Pages that explain an address, link to the console and show code to call it. Programs get JSON instead."""

    def __init__(self, base_url: str, platform: str, *, authenticated: bool) -> None:
        """`authenticated`: callers need a key, so the snippets show where to put it."""
        self.headers: Headers = [*GUARDED, (b"cache-control", b"no-store")]
        self._base_url = base_url
        self._platform = platform
        self._authenticated = authenticated

    def index(self, agents: Sequence[Agent]) -> bytes:
        listed = sorted(agents, key=lambda agent: agent.name.lower())
        return self._page("index.html", self._platform, agents=listed)

    def agent(self, agent: Agent) -> bytes:
        address = f"{self._base_url}/agents/{agent.slug}"
        example = next((text for skill in agent.skills for text in skill.examples), "hello")
        snippets = [
            ("curl", self._curl(address, example)),
            ("Python", self._python(address, example)),
            ("TypeScript", self._typescript(address, example)),
        ]
        return self._page("address.html", agent.name, agent=agent, address=address, snippets=snippets)

    def _page(self, template: str, title: str, **more: Any) -> bytes:
        context: dict[str, Any] = {
            "title": title,
            "platform": self._platform,
            "crumbs": [],
            "nav": [],
            "section": "",
            "csrf_token": "",
            "theme": "",
            "principal": None,
            "signed_in": False,
            "here": "/",
            **more,
        }
        return render(template, context).encode(errors="replace")

    def _curl(self, address: str, text: str) -> str:
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        quoted = json.dumps(body, ensure_ascii=False).replace("'", "'\\''")
        key = '  -H "Authorization: Bearer $PARLEY_TOKEN" \\\n' if self._authenticated else ""
        return (
            f"curl {address} \\\n{key}  -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \\\n  -d '{quoted}'"
        )

    def _python(self, address: str, text: str) -> str:
        key = ', token=os.environ["PARLEY_TOKEN"]' if self._authenticated else ""
        return (
            f"import asyncio{', os' if key else ''}\nfrom parley.client import Client\n\n\nasync def main():\n"
            f"    async with Client({address!r}{key}) as client:\n"
            f"        async for event in client.stream({text!r}):\n            print(event)\n\n\nasyncio.run(main())"
        )

    def _typescript(self, address: str, text: str) -> str:
        key = "\n    Authorization: `Bearer ${process.env.PARLEY_TOKEN}`," if self._authenticated else ""
        return (
            f"const response = await fetch({json.dumps(address)}, {{\n  method: 'POST',\n  headers: {{{key}\n"
            "    'A2A-Version': '1.0', 'Content-Type': 'application/json',\n  },\n"
            "  body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message: {\n"
            "    messageId: crypto.randomUUID(), role: 'ROLE_USER', parts: "
            f"[{{ text: {json.dumps(text, ensure_ascii=False)} }}],\n  }} }} }}),\n}});\n"
            "console.log(JSON.stringify(await response.json(), null, 2));"
        )
