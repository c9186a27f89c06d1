"""What makes the rules happen: the one write path, streams, execution. Knows no wire and no database."""
