"""Conformance cases for A2A 1.1: generations, long polls and guarded sends, over three bindings."""
