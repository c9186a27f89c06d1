"""Agents as files: read with the line of every fault, and read again when they change."""
