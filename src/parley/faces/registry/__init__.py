"""Contract 004 on the wire: nodes register, are found and followed. It calls them workspaces."""
