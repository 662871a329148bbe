"""Kafka's settings as text, one module an area; `definition.read_table` says how to read them."""
