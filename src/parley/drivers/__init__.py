"""How agents do their work. Each module implements the engine's Driver port."""
