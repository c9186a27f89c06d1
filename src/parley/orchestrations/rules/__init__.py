"""Rules of orchestrations: plans, state and commands as pure functions of values."""
