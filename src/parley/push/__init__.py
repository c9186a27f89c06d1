"""Push notifications: hooks, deliveries and the queue that shares them fairly."""
