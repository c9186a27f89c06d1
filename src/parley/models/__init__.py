"""Language models. Each module implements the engine's Llm port; what a vendor needs is imported with its module."""
