"""Rules of runs: events, state, commands and views as pure functions of values."""
