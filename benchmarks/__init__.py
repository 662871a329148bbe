"""How fast Headwater is beside Apache Kafka, on this machine, with other people's clients.

`python -m benchmarks` (or `make bench`) runs each row against both and prints the ratio.
"""
