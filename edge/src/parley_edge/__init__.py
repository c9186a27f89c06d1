"""`a2a-runtime`: connects an agent behind NAT to its platform. `parley_edge.adapter` is the kit to write agents."""

__version__ = "0.2.0"
