"""The blocking faces of the clients: one background thread with an event loop for each client."""
