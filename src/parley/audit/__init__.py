"""Audit log: who did what to what, from where, with which result; append-only and hash-chained."""
