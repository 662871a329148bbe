"""Share coordinator and transactions."""

TABLE = """
add.partitions.to.txn.retry.backoff.max.ms INT 100 H fixed + >=0
    How long a leader tries to add its partition to a transaction, in ms.
add.partitions.to.txn.retry.backoff.ms INT 20 H fixed + >=1
    Pause before a leader tries again to add its partition to a transaction, in ms.
share.coordinator.append.linger.ms INT -1 M fixed - >=-1
    How long the share coordinator collects writes, in ms; -1 lets it choose.
share.coordinator.cached.buffer.max.bytes INT 1048588 M cluster - >=524288
    Maximum size of a write buffer kept for reuse; no meaning here: none is kept.
share.coordinator.cold.partition.snapshot.interval.ms INT 300000 L fixed -i >=1
    How often snapshots of inactive share partitions are written, in ms.
share.coordinator.load.buffer.size INT 5242880 H fixed - >=1
    Number of bytes read at a time when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot INT 500 M fixed - 0..500
    Number of updates of a share partition between two snapshots.
share.coordinator.state.topic.compression.codec INT 0 H fixed -
    Compression codec of the share state topic as a number; 0 is none.
share.coordinator.state.topic.min.isr SHORT 2 H fixed - >=1
    Minimum number of in-sync replicas of the share state topic.
share.coordinator.state.topic.num.partitions INT 50 H fixed - >=1
    Number of partitions of the share state topic; do not change it once the topic exists.
share.coordinator.state.topic.prune.interval.ms INT 300000 L fixed -i >=1
    How often the share state topic is pruned, in ms.
share.coordinator.state.topic.replication.factor SHORT 3 H fixed - >=1
    Replication factor of the share state topic.
share.coordinator.state.topic.segment.bytes INT 104857600 H fixed - >=1
    Segment size of the share state topic, in bytes.
share.coordinator.threads INT 1 M fixed - >=1
    Number of threads of the share coordinator; no meaning here: it runs on the event loop.
share.coordinator.write.timeout.ms INT 5000 H fixed - >=1
    How long a write of share state may wait for replication, in ms.
share.fetch.purgatory.purge.interval.requests INT 1000 M fixed -
    When finished waits are purged; no meaning here: each is removed at once.
transaction.abort.timed.out.transaction.cleanup.interval.ms INT 10000 L fixed + >=1
    How often to check for timed-out transactions, in ms.
transaction.max.timeout.ms INT 900000 H fixed + >=1
    Maximum transaction timeout of producers, in ms.
transaction.partition.verification.enable BOOLEAN true L cluster +
    Whether a partition verifies that it is part of a transaction before a transactional write.
transaction.remove.expired.transaction.cleanup.interval.ms INT 3600000 L fixed + >=1
    How often to check for expired transactional ids, in ms.
transaction.state.log.load.buffer.size INT 5242880 H fixed + >=1
    Number of bytes read at a time when transactions are loaded.
transaction.state.log.min.isr INT 2 H fixed + >=1
    Minimum number of in-sync replicas of the transactions topic.
transaction.state.log.num.partitions INT 50 H fixed + >=1
    Number of partitions of the transactions topic; do not change it once the topic exists.
transaction.state.log.replication.factor SHORT 3 H fixed + >=1
    Replication factor of the transactions topic.
transaction.state.log.segment.bytes INT 104857600 H fixed + >=1
    Segment size of the transactions topic, in bytes; smaller segments load faster.
transaction.two.phase.commit.enable BOOLEAN false L fixed +
    Whether transactions may take part in a two-phase commit, without a timeout.
transactional.id.expiration.ms INT 604800000 H fixed + >=1
    A transactional id that is unused for this long expires, in ms.
"""
