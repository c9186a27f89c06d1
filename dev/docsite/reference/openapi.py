"""The OpenAPI documents, as a server shows them."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import httpx2

from dev.docsite.reference.types import of_schema
from dev.docsite.reference.writing import code, sentence, table, whole
from parley.client import RuntimeClient
from parley.testing.servers import serving

Json = dict[str, Any]
SECRET = "dev-runtime-signature-secret"
_INTRODUCTION = """\
Three faces describe themselves as OpenAPI 3.1, made from the tables that they work by. This is what the documents
say; programs fetch them from a server of theirs. What it means is told in [plans and deliverables](../documents.md),
in [the runtime contract](../runtime.md) and in [pairing](../pairing.md)."""


def page() -> str:
    modes, runtime, paired = asyncio.run(documents())
    return whole(
        "OpenAPI documents",
        _INTRODUCTION,
        *_document(modes, "Plans, tools, conversations, orchestrations", "/api/agent2agent/openapi.json"),
        *_document(runtime, "The control plane", "/internal/v1/openapi.json"),
        *_document(paired, "Runtimes of agents behind NAT", "/agent-runtimes/openapi.json"),
    )


async def documents() -> tuple[Json, Json, Json]:
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder), (), store="memory") as server, RuntimeClient(server.url, SECRET) as client:
            async with httpx2.AsyncClient(base_url=server.url) as http:
                modes: Json = (await http.get("/api/agent2agent/openapi.json")).json()
                paired: Json = (await http.get("/agent-runtimes/openapi.json")).json()
            return modes, await client.openapi(), paired


def _document(document: Json, title: str, served: str) -> list[str]:
    operations = [
        (code(f"{method.upper()} {path}"), one.get("summary", ""), _body(one), ", ".join(sorted(one["responses"])))
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    ]
    schemas = document["components"]["schemas"]
    return [
        f"## {title}",
        f"At {code(served)}: {document['info']['title']}. {document['info'].get('description', '')}".strip(),
        table(("operation", "", "body", "answers"), operations),
        *(_schema(name, schema) for name, schema in sorted(schemas.items())),
    ]


def _body(operation: Json) -> str:
    content: Json = operation.get("requestBody", {}).get("content", {})
    return " or ".join(of_schema(one["schema"]) for one in content.values())


def _schema(name: str, schema: Json) -> str:
    needed = schema.get("required", ())
    rows = [
        (code(member if member in needed else f"{member}?"), of_schema(one), sentence(one.get("description")))
        for member, one in schema.get("properties", {}).items()
    ]
    shown = table(("member", "type", ""), rows) if rows else f"{of_schema(schema)}."
    return "\n\n".join(filter(None, [f"### {name}", sentence(schema.get("description")), shown]))
