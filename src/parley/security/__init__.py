"""Who somebody is, and how others can tell that something is from us. No face, no store."""
