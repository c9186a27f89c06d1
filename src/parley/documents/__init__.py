"""Documents: plans and deliverables in immutable versions, conversations and their exports."""
