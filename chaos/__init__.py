"""Everything at once, while everything breaks: `make chaos`. What it does and how to read it: docs/chaos.md."""
