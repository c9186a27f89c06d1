"""Language models. Each module implements the engine's Llm port and imports its vendor's package only when used."""
