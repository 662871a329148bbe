"""Who has what of a partition: high watermark, in-sync set, truncation. Machines only."""
