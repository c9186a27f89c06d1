"""The organisation kernel: roles, domains and graph workflows behind one agent (contract 001). It can be used alone."""
