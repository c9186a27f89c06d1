"""Face of AG-UI (`/agents/{slug}/agui`): web front ends start runs, follow them, and resume after a lost connection."""
