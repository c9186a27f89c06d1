"""The fixtures that users get."""

from parley.testing.fixtures import parley_server as parley_server
