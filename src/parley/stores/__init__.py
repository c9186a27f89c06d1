"""Where logs and bytes are kept. Each module implements one port of the engine."""
