"""Execution: agents and their drivers, turns, the executor, admission and membership of replicas."""
