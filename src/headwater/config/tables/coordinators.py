"""Share coordinator and transactions."""

TABLE = """
add.partitions.to.txn.retry.backoff.max.ms INT 100 H fixed - >=0
    .
add.partitions.to.txn.retry.backoff.ms INT 20 H fixed - >=1
    .
share.coordinator.append.linger.ms INT -1 M fixed + >=-1
    .
share.coordinator.cached.buffer.max.bytes INT 1048588 M cluster - >=524288
    .
share.coordinator.cold.partition.snapshot.interval.ms INT 300000 L fixed -i >=1
    .
share.coordinator.load.buffer.size INT 5242880 H fixed - >=1
    .
share.coordinator.snapshot.update.records.per.snapshot INT 500 M fixed + 0..500
    .
share.coordinator.state.topic.compression.codec INT 0 H fixed -
    .
share.coordinator.state.topic.min.isr SHORT 2 H fixed + >=1
    .
share.coordinator.state.topic.num.partitions INT 50 H fixed + >=1
    .
share.coordinator.state.topic.prune.interval.ms INT 300000 L fixed -i >=1
    .
share.coordinator.state.topic.replication.factor SHORT 3 H fixed + >=1
    .
share.coordinator.state.topic.segment.bytes INT 104857600 H fixed + >=1
    .
share.coordinator.threads INT 1 M fixed - >=1
    .
share.coordinator.write.timeout.ms INT 5000 H fixed + >=1
    .
share.fetch.purgatory.purge.interval.requests INT 1000 M fixed -
    .
transaction.abort.timed.out.transaction.cleanup.interval.ms INT 10000 L fixed + >=1
    .
transaction.max.timeout.ms INT 900000 H fixed + >=1
    .
transaction.partition.verification.enable BOOLEAN true L cluster +
    .
transaction.remove.expired.transaction.cleanup.interval.ms INT 3600000 L fixed + >=1
    .
transaction.state.log.load.buffer.size INT 5242880 H fixed - >=1
    .
transaction.state.log.min.isr INT 2 H fixed + >=1
    .
transaction.state.log.num.partitions INT 50 H fixed + >=1
    .
transaction.state.log.replication.factor SHORT 3 H fixed + >=1
    .
transaction.state.log.segment.bytes INT 104857600 H fixed + >=1
    .
transaction.two.phase.commit.enable BOOLEAN false L fixed +
    .
transactional.id.expiration.ms INT 604800000 H fixed + >=1
    .
"""
