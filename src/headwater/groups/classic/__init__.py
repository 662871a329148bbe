"""Classic groups: members agree on a protocol, and one of them assigns for all."""
