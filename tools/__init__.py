"""Helpers of the make targets: Apache Kafka from Maven Central, and nodes as processes."""
