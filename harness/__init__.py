"""Harnesses: nodes as processes, ours and Apache Kafka, the soak, the group storm, the proxy."""
