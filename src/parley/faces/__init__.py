"""Each contract is a face: it turns its wire into a command, and events back into its wire. Faces never decide."""
