"""Links that are good by themselves, for a while: whoever has one may follow it, and nobody can make or change one."""

import base64
import hmac
from urllib.parse import quote, urlencode

from parley.clock import Clock, now_ms
from parley.errors import LinkExpired, LinkRefused
from parley.security.secrets import Secrets

PURPOSE = "parley.links.1"


class Links:
    """Signed with a key of the secrets' file, which all replicas share; the first line signs, every line is good."""

    def __init__(self, secrets: Secrets, prefix: str, clock: Clock = now_ms) -> None:
        self._secrets = secrets
        self._prefix = prefix
        self._clock = clock
        self._keys: list[bytes] | None = None

    def link(self, id_: str, name: str, expires_at: int) -> str:
        """The address behind `prefix`; the time is in ms, and in the link in whole seconds."""
        expires = str(expires_at // 1000)
        signature = _signature(self._known()[0], self._prefix, id_, expires, name)
        return f"{self._prefix}{quote(id_, safe='')}?{urlencode({'name': name, 'exp': expires, 'sig': signature})}"

    def check(self, id_: str, name: str, expires: str, signature: str) -> None:
        """Nothing is looked up for a link that is not ours."""
        ours = [_signature(key, self._prefix, id_, expires, name) for key in self._known()]
        if not any(hmac.compare_digest(one.encode(), signature.encode()) for one in ours):
            raise LinkRefused("This link was not made here, or has been changed.")
        if int(expires) * 1000 <= self._clock():
            raise LinkExpired("This link has expired; export the conversation again.")

    def _known(self) -> list[bytes]:
        if self._keys is None:
            self._keys = self._secrets.derived(PURPOSE)
        return self._keys


def _signature(key: bytes, *parts: str) -> str:
    """Each part with its length before it, so that nothing can move from one to the next."""
    message = b"".join(b"%d:%b" % (len(part.encode()), part.encode()) for part in parts)
    return base64.urlsafe_b64encode(hmac.digest(key, message, "sha256")).rstrip(b"=").decode()
