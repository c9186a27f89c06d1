"""`/workspaces/{id}/a2a`: nodes spoken to through this server, in any generation of A2A (contract 004)."""
