"""Follows the README literally in an empty folder, and reports where the result differs."""
