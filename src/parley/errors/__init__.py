"""The tree of errors. Each error has a stable code, and a message that its reader can act on.

Faces map `code` to their wire format; the message is safe to show to a client.
"""

from parley.errors.agents import *  # noqa: F403 - one tree of errors, defined in two files
from parley.errors.kinds import *  # noqa: F403
