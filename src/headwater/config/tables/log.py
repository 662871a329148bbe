"""The log: segments, retention, compaction, and what new topics get."""

TABLE = """
auto.create.topics.enable BOOLEAN true H fixed +
    Whether a topic is created when a client asks for one that does not exist.
background.threads INT 10 H cluster - >=1
    Number of threads for background tasks; no meaning here: they share the worker threads.
compression.gzip.level INT -1 M cluster + gzip
    Compression level of gzip, 1 to 9; -1 is the library's default.
compression.lz4.level INT 9 M cluster + 1..17
    Compression level of lz4, 1 to 17.
compression.type STRING producer H cluster + in(uncompressed|zstd|lz4|snappy|gzip|producer)
    Codec in which batches are stored; producer keeps the producer's choice.
compression.zstd.level INT 3 M cluster + -131072..22
    Compression level of zstd; levels below 1 are faster and compress less.
cordoned.log.dirs LIST "" M broker + list?
    Directories that get no new replicas; * means all.
create.topic.policy.class.name CLASS null L fixed +
    Plugin class that may reject new topics.
default.replication.factor INT 1 M fixed +
    Number of replicas of topics created without an explicit number.
delete.topic.enable BOOLEAN true H fixed +
    Whether topics can be deleted.
log.cleaner.backoff.ms LONG 15000 M cluster + >=0
    How long the cleaner sleeps when there is nothing to compact, in ms.
log.cleaner.dedupe.buffer.size LONG 134217728 M cluster +
    Memory for the keys of all running compactions, in bytes.
log.cleaner.delete.retention.ms LONG 86400000 M cluster + >=0
    How long compaction keeps tombstones, in ms, for topics without delete.retention.ms.
log.cleaner.enable BOOLEAN true M fixed +
    Whether compaction runs for topics with cleanup.policy=compact.
log.cleaner.io.buffer.load.factor DOUBLE 0.9 M cluster +
    Maximum load factor of the key memory of compaction.
log.cleaner.io.buffer.size INT 524288 M cluster + >=0
    Memory for I/O buffers of all cleaners, in bytes.
log.cleaner.io.max.bytes.per.second DOUBLE 1.7976931348623157E308 M cluster +
    Maximum number of bytes per second that compaction reads and writes.
log.cleaner.max.compaction.lag.ms LONG 9223372036854775807 M cluster + >=1
    Maximum time that a record stays uncompacted, in ms.
log.cleaner.min.cleanable.ratio DOUBLE 0.5 M cluster + 0.0..1.0
    Minimum ratio of uncompacted to total bytes for a log to be compacted.
log.cleaner.min.compaction.lag.ms LONG 0 M cluster + >=0
    Minimum time that a record stays uncompacted, in ms.
log.cleaner.threads INT 1 M cluster + >=0
    Number of logs compacted at the same time.
log.cleanup.policy LIST delete M cluster + list(compact|delete)
    How old records are handled: delete, compact, or both; empty keeps everything.
log.dir LIST /tmp/kafka-logs H fixed + list!
    Data directory, if log.dirs is not set.
log.dir.failure.timeout.ms LONG 30000 L fixed - >=1
    A broker stops if it cannot report a failed directory within this time, in ms.
log.dirs LIST null H fixed + list!?
    Data directories, separated by commas.
log.flush.interval.messages LONG 9223372036854775807 H cluster + >=1
    A log is flushed to disk after this many records.
log.flush.interval.ms LONG null H cluster +
    Maximum time before a log is flushed to disk, in ms.
log.flush.offset.checkpoint.interval.ms INT 60000 H fixed + >=0
    How often recovery points are written to disk, in ms.
log.flush.scheduler.interval.ms LONG 9223372036854775807 H fixed +
    How often to check whether logs must be flushed, in ms.
log.flush.start.offset.checkpoint.interval.ms INT 60000 H fixed - >=0
    How often log start offsets are written to disk, in ms.
log.index.interval.bytes INT 4096 M cluster + >=0
    Number of bytes of the log between two index entries.
log.index.size.max.bytes INT 10485760 M cluster + >=4
    Maximum size of a segment's index, in bytes; a full index rolls the segment.
log.initial.task.delay.ms LONG 30000 L fixed -i >=0
    Delay after the start before log maintenance begins, in ms.
log.message.timestamp.after.max.ms LONG 3600000 M cluster + >=0
    How far a record's timestamp may be ahead of the broker's clock, in ms.
log.message.timestamp.before.max.ms LONG 9223372036854775807 M cluster + >=0
    How far a record's timestamp may be behind the broker's clock, in ms.
log.message.timestamp.type STRING CreateTime M cluster + in(CreateTime|LogAppendTime)
    Whether a record's timestamp is set by its producer or at the time of the append.
log.preallocate BOOLEAN false M cluster +
    Whether segment files are preallocated when they are created.
log.retention.bytes LONG -1 H cluster +
    Maximum size of a partition's log before old segments are deleted, in bytes; -1 means no limit.
log.retention.check.interval.ms LONG 300000 M fixed + >=1
    How often to check logs for segments to delete, in ms.
log.retention.hours INT 168 H fixed +
    How long records are kept, in hours; the settings in minutes and ms take precedence.
log.retention.minutes INT null H fixed +
    How long records are kept, in minutes; log.retention.ms takes precedence.
log.retention.ms LONG null H cluster +
    How long records are kept, in ms; -1 means forever.
log.roll.hours INT 168 H fixed + >=1
    Maximum age of a segment before it is rolled, in hours; log.roll.ms takes precedence.
log.roll.jitter.hours INT 0 H fixed + >=0
    Maximum random jitter subtracted from log.roll.hours, so that segments do not all roll at once.
log.roll.jitter.ms LONG null H cluster +
    Maximum random jitter subtracted from log.roll.ms, so that segments do not all roll at once.
log.roll.ms LONG null H cluster +
    Maximum age of a segment before it is rolled, in ms, even if it is not full.
log.segment.bytes INT 1073741824 H cluster + >=1048576
    Maximum size of a segment, in bytes.
log.segment.delete.delay.ms LONG 60000 H cluster + >=0
    How long a deleted segment stays on disk for its last readers, in ms.
max.request.partition.size.limit INT 2000 M fixed + >=1
    Maximum number of partitions in one DescribeTopicPartitions response.
message.max.bytes INT 1048588 H cluster + >=0
    Maximum size of a record batch, in bytes, after compression.
min.insync.replicas INT 1 H cluster + >=1
    Minimum number of in-sync replicas for a write with acks=all.
num.partitions INT 1 M fixed + >=1
    Number of partitions of topics created without an explicit number.
num.recovery.threads.per.data.dir INT 2 H cluster + >=1
    Number of threads for each directory that open and close its logs.
producer.id.expiration.check.interval.ms INT 600000 L fixed +i >=1
    How often to check for expired producer ids, in ms.
producer.id.expiration.ms INT 86400000 L cluster + >=1
    A partition forgets a producer that has not written for this long, in ms.
unclean.leader.election.enable BOOLEAN false H cluster +
    Whether a replica that is not in sync may lead as a last resort, which can lose records.
unclean.leader.election.interval.ms LONG 300000 M fixed +i >=1
    How often unclean elections are attempted, in ms.
"""
