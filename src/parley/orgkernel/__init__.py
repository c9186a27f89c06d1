"""The kernel of the organisation contract (001): roles, domains and graph workflows behind one agent. It can be used
without the rest of Parley."""
