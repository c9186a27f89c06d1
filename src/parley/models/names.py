"""Models by their names: `openai:gpt-…`, `anthropic:claude-…`, `offline`."""

from importlib import import_module

from msgspec import Struct

from parley import extras
from parley.engine.ports import Llm
from parley.errors import Invalid
from parley.models.endpoint import Endpoint
from parley.models.offline import NAME as OFFLINE
from parley.models.offline import OfflineModel

_VENDORS = {
    "openai": ("parley.models.openai_compatible", "OpenAiCompatible"),
    "anthropic": ("parley.models.anthropic", "AnthropicModel"),
}


class Access(Struct, frozen=True):
    """How a vendor is reached, where it is not as usual."""

    base_url: str | None = None
    key_from: str | None = None
    silence_s: float = 60.0
    retries: int = 2


def open_model(name: str, access: Access) -> Llm:
    """The model of this name. It is asked for nothing yet; Invalid says what is wrong with the name."""
    if name == OFFLINE:
        return OfflineModel()
    vendor, _, model = name.partition(":")
    if vendor not in _VENDORS or not model:
        raise Invalid(f"write openai:NAME, anthropic:NAME or offline, not {name!r}", field="model")
    module, adapter = _VENDORS[vendor]
    extras.check("llm", f"A model of {vendor}", vendor, field="model")
    found = import_module(module)
    # The usual key is for the usual place: another server gets only a key that was named for it.
    key_from = access.key_from or (found.KEY_FROM if access.base_url is None else None)
    endpoint = Endpoint(model, access.base_url or found.BASE_URL, key_from, access.silence_s, access.retries)
    return getattr(found, adapter)(endpoint)


def key_variable(llm: Llm) -> str | None:
    """The environment variable with the model's key, if it needs one."""
    endpoint: object = getattr(llm, "endpoint", None)
    return endpoint.key_from if isinstance(endpoint, Endpoint) else None
