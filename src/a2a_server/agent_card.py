"""The card of the active organisation: what it says is made in `parley.orgkernel`, how it looks in `parley.faces`."""

from parley.orgkernel.card import blank_agent, described, skills

__all__ = ["blank_agent", "described", "skills"]
