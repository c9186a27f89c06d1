"""Pages of the console, one module per section."""
