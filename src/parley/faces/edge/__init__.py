"""The platform's side of agents behind NAT: pairing, and the calls of the runtimes that do their work."""
