"""What turns an agent into a node that others find and call (contract 004)."""
