"""The runtime: pulls tasks, renews their leases, calls the local agent and delivers results."""
