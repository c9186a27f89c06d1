"""Face of the actions (002): one endpoint, five modes, a task for every action, and links to exported files."""
