"""Face of paired runtimes (000), platform side: pairing of agents behind NAT, and the calls of their runtimes."""
