"""Messages that are not requests: in logs, state files and between members of groups."""
