"""Agents defined in files: each error is reported with its line, and files are read again when they change."""
