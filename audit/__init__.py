"""What is installed: whether something is known against it, and on which terms it is used. `make audit` runs it."""
