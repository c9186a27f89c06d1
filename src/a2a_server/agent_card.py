"""Agent card of the active organisation: `parley.orgkernel` makes its content, `parley.faces` its format."""

from parley.orgkernel.card import blank_agent, described, skills

__all__ = ["blank_agent", "described", "skills"]
