"""Paired runtimes: processes behind NAT that pull work and hold it by a lease."""
