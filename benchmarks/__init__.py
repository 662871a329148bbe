"""Benchmarks of Headwater and Apache Kafka on the same machine with the same clients.

`python -m benchmarks` (or `make bench`) measures both and prints each result with its ratio.
"""
