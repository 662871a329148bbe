"""The blocking clients: each runs an event loop in a background thread."""
