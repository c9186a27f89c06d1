"""`a2a-runtime`: connects an agent behind NAT to its platform. The kit for such agents is `parley_edge.adapter`."""

__version__ = "0.1.0"
