"""Face of the Agent2Agent protocol (A2A), versions 1.0 and 0.3."""
