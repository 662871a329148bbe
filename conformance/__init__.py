"""Kafka's own tools and other people's clients, against a fresh node.

Not part of `make test`: it needs Java, node and a network. `make conformance` runs it.
"""
