"""One tree of errors. Each has a stable code, and a sentence its reader can act on.

Faces map `code` to their wire; the message is safe to show to a client.
"""

from parley.errors.agents import *  # noqa: F403 - the tree is one, whichever file a branch of it stands in
from parley.errors.kinds import *  # noqa: F403
from parley.errors.nodes import *  # noqa: F403
