"""What is known of servers without the library that speaks to them: it takes a while to load, and may be missing."""

from collections.abc import Callable
from typing import Literal

import httpx2

State = Literal["idle", "starting", "ready", "failed", "ended"]
OpenTransport = Callable[[], httpx2.AsyncBaseTransport]
