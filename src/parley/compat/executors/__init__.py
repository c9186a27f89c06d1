"""An `AgentExecutor` of the official A2A SDK as an agent of ours: its code stays as it is, its work gets a log."""
