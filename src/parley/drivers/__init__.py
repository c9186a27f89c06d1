"""Drivers, which do the work of agents. Each module implements the engine's Driver port."""
