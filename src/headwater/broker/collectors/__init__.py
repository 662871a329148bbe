"""The metrics of a node for Prometheus: collectors for `observability/registry`.

The names are those under which Prometheus knows Kafka: the JMX names as the usual rules of
jmx_exporter map them, kafka_exporter's for groups and offsets, and `headwater_` for what Kafka does
not have. A count that several nodes know is reported by one: a partition's by its leader, a
group's by its coordinator, the cluster's by the active controller.
"""
