"""Commands of `a2a-runtime`, one module each, and the output of `start`."""
