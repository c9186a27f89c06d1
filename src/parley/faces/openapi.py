"""What every OpenAPI document of ours is made with."""

from collections.abc import Iterable
from typing import Any

import msgspec

Json = dict[str, Any]


def described(types: Iterable[type]) -> tuple[dict[type, Json], Json]:
    """A reference to each type, and the schemas of all of them and of what they are made of."""
    ordered = sorted(set(types), key=lambda type_: type_.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    return dict(zip(ordered, schemas, strict=True)), components
