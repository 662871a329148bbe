"""Quotas of clients: which apply to whom, and how long a client that takes more has to wait."""
