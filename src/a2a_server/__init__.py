"""Contract 001's package: each of its modules says which of ours does the work. `python -m a2a_server.run` serves."""
