"""Checks all installed packages for known vulnerabilities and for licences. `make audit` runs it."""
