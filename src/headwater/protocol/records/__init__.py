"""Messages that are not requests: what logs, state files and members of groups carry."""
