"""Faces with everything they need, put together: what `parley.app` opens and closes."""
