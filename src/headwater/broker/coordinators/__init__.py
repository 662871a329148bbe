"""Drivers of the coordinators whose state is a log: groups now, transactions and shares to come."""
