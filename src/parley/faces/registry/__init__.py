"""Face of the registry and proxy (004): registration, discovery and events of nodes, which it calls workspaces."""
