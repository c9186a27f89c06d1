"""Storage of logs, records and blobs. Each module implements one protocol of the engine."""
