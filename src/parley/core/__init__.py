"""The rules, as functions of values: no I/O, no event loop, no framework."""
