"""The replication of a partition: high watermark and in-sync set. Machines only."""
