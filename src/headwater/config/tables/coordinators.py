"""Share coordinator and transactions."""

TABLE = """
add.partitions.to.txn.retry.backoff.max.ms INT 100 H fixed - >=0
    Longest pause before partitions are added to a transaction again, in ms.
add.partitions.to.txn.retry.backoff.ms INT 20 H fixed - >=1
    First pause before partitions are added to a transaction again, in ms.
share.coordinator.append.linger.ms INT -1 M fixed - >=-1
    How long the share coordinator gathers writes, in ms; -1 lets it choose.
share.coordinator.cached.buffer.max.bytes INT 1048588 M cluster - >=524288
    Largest write buffer that the share coordinator keeps for the next write.
share.coordinator.cold.partition.snapshot.interval.ms INT 300000 L fixed -i >=1
    How often quiet share partitions get a snapshot, in ms.
share.coordinator.load.buffer.size INT 5242880 H fixed - >=1
    Bytes read at a time when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot INT 500 M fixed - 0..500
    Updates of a share partition before its next snapshot.
share.coordinator.state.topic.compression.codec INT 0 H fixed -
    Codec of the share state topic, as its number: 0 is none.
share.coordinator.state.topic.min.isr SHORT 2 H fixed - >=1
    Replicas of the share state topic that must have a record.
share.coordinator.state.topic.num.partitions INT 50 H fixed - >=1
    Partitions of the share state topic; not to be changed once it is there.
share.coordinator.state.topic.prune.interval.ms INT 300000 L fixed -i >=1
    How often the share state topic is cut to what is needed, in ms.
share.coordinator.state.topic.replication.factor SHORT 3 H fixed - >=1
    Replicas of the share state topic.
share.coordinator.state.topic.segment.bytes INT 104857600 H fixed - >=1
    Size of a segment of the share state topic.
share.coordinator.threads INT 1 M fixed - >=1
    Threads that serve the share coordinator.
share.coordinator.write.timeout.ms INT 5000 H fixed - >=1
    How long a write of share state may wait for the replicas, in ms.
share.fetch.purgatory.purge.interval.requests INT 1000 M fixed -
    After how many finished waits of share fetches memory is tidied.
transaction.abort.timed.out.transaction.cleanup.interval.ms INT 10000 L fixed - >=1
    How often transactions are looked at for overdue ones, in ms.
transaction.max.timeout.ms INT 900000 H fixed - >=1
    Longest transaction timeout that a producer may ask for, in ms.
transaction.partition.verification.enable BOOLEAN true L cluster -
    Whether a partition asks if it belongs to a transaction before it writes.
transaction.remove.expired.transaction.cleanup.interval.ms INT 3600000 L fixed - >=1
    How often transactional ids are looked at for unused ones, in ms.
transaction.state.log.load.buffer.size INT 5242880 H fixed - >=1
    Bytes read at a time when transactions are loaded.
transaction.state.log.min.isr INT 2 H fixed - >=1
    Replicas of the transactions topic that must have a record.
transaction.state.log.num.partitions INT 50 H fixed - >=1
    Partitions of the transactions topic; not to be changed once it is there.
transaction.state.log.replication.factor SHORT 3 H fixed - >=1
    Replicas of the transactions topic.
transaction.state.log.segment.bytes INT 104857600 H fixed - >=1
    Size of a segment of the transactions topic; small ones load faster.
transaction.two.phase.commit.enable BOOLEAN false L fixed -
    Whether transactions may stay prepared without a timeout for a second system.
transactional.id.expiration.ms INT 604800000 H fixed - >=1
    A transactional id not used for this long is forgotten, in ms.
"""
