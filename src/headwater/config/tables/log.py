"""The log: segments, retention, compaction, and what new topics get."""

TABLE = """
auto.create.topics.enable BOOLEAN true H fixed +
    Whether a topic is made when a client asks for one that does not exist.
background.threads INT 10 H cluster - >=1
    Size of the pool for work in the background.
compression.gzip.level INT -1 M cluster + gzip
    Level for gzip, 1 to 9; -1 is the library's own choice.
compression.lz4.level INT 9 M cluster + 1..17
    Level for lz4, 1 to 17.
compression.type STRING producer H cluster + in(uncompressed|zstd|lz4|snappy|gzip|producer)
    Codec in which batches are kept; producer keeps what the producer chose.
compression.zstd.level INT 3 M cluster + -131072..22
    Level for zstd; below 1 is quicker and larger.
cordoned.log.dirs LIST "" M broker + list?
    Directories that get no new replicas; * means all.
create.topic.policy.class.name CLASS null L fixed -
    Plugin that may refuse new topics.
default.replication.factor INT 1 M fixed +
    Replicas of a topic whose maker does not say how many.
delete.topic.enable BOOLEAN true H fixed +
    Whether topics can be deleted.
log.cleaner.backoff.ms LONG 15000 M cluster + >=0
    How long a cleaner sleeps when there is nothing to compact, in ms.
log.cleaner.dedupe.buffer.size LONG 134217728 M cluster +
    Memory for the keys of all compaction at a time, in bytes.
log.cleaner.delete.retention.ms LONG 86400000 M cluster + >=0
    How long compaction keeps a deletion mark, in ms, where a topic says nothing.
log.cleaner.enable BOOLEAN true M fixed +
    Whether compacted topics are compacted.
log.cleaner.io.buffer.load.factor DOUBLE 0.9 M cluster +
    How full the key memory of compaction may get.
log.cleaner.io.buffer.size INT 524288 M cluster + >=0
    Memory for reading and writing of all cleaners, in bytes.
log.cleaner.io.max.bytes.per.second DOUBLE 1.7976931348623157E308 M cluster +
    Most bytes a second that compaction reads and writes.
log.cleaner.max.compaction.lag.ms LONG 9223372036854775807 M cluster + >=1
    A record is compacted no later than this after its write, in ms.
log.cleaner.min.cleanable.ratio DOUBLE 0.5 M cluster + 0.0..1.0
    Share of a log that must be uncompacted before it is worth a run.
log.cleaner.min.compaction.lag.ms LONG 0 M cluster + >=0
    A record stays uncompacted at least this long, in ms.
log.cleaner.threads INT 1 M cluster + >=0
    How many logs are compacted at a time.
log.cleanup.policy LIST delete M cluster + list(compact|delete)
    What happens to old records: delete, compact, or both; empty keeps all.
log.dir LIST /tmp/kafka-logs H fixed + list!
    Where data is kept, if log.dirs is not set.
log.dir.failure.timeout.ms LONG 30000 L fixed - >=1
    A broker stops if it cannot report a failed directory in this time, in ms.
log.dirs LIST null H fixed + list!?
    Directories where data is kept, divided by commas.
log.flush.interval.messages LONG 9223372036854775807 H cluster + >=1
    A log is forced to disk after this many records.
log.flush.interval.ms LONG null H cluster +
    A log is forced to disk after at most this time, in ms.
log.flush.offset.checkpoint.interval.ms INT 60000 H fixed + >=0
    How often it is noted up to where logs are on disk, in ms.
log.flush.scheduler.interval.ms LONG 9223372036854775807 H fixed +
    How often logs are looked at whether they must go to disk, in ms.
log.flush.start.offset.checkpoint.interval.ms INT 60000 H fixed - >=0
    How often the start of each log is noted, in ms.
log.index.interval.bytes INT 4096 M cluster + >=0
    Bytes of log between two entries of its index.
log.index.size.max.bytes INT 10485760 M cluster + >=4
    Largest index of a segment, in bytes; a full index rolls the segment.
log.initial.task.delay.ms LONG 30000 L fixed -i >=0
    Pause after the start before logs are looked after, in ms.
log.message.timestamp.after.max.ms LONG 3600000 M cluster + >=0
    How far a record's time may be ahead of the broker's clock, in ms.
log.message.timestamp.before.max.ms LONG 9223372036854775807 M cluster + >=0
    How far a record's time may be behind the broker's clock, in ms.
log.message.timestamp.type STRING CreateTime M cluster + in(CreateTime|LogAppendTime)
    Whether a record has its producer's time or the time of its append.
log.preallocate BOOLEAN false M cluster +
    Whether a segment gets its whole size on disk when it is made.
log.retention.bytes LONG -1 H cluster +
    A partition's log is cut to this many bytes; -1 means no bound.
log.retention.check.interval.ms LONG 300000 M fixed + >=1
    How often logs are looked at for old segments, in ms.
log.retention.hours INT 168 H fixed +
    How long records are kept, in hours, unless minutes or ms are set.
log.retention.minutes INT null H fixed +
    How long records are kept, in minutes, unless ms are set.
log.retention.ms LONG null H cluster +
    How long records are kept, in ms; -1 means for ever.
log.roll.hours INT 168 H fixed + >=1
    A segment ends after this time, in hours, unless ms are set.
log.roll.jitter.hours INT 0 H fixed + >=0
    Most hours by which a segment ends earlier, so that not all end at once.
log.roll.jitter.ms LONG null H cluster +
    Most ms by which a segment ends earlier, so that not all end at once.
log.roll.ms LONG null H cluster +
    A segment ends after this time, in ms, even if it is not full.
log.segment.bytes INT 1073741824 H cluster + >=1048576
    A segment ends when it has this many bytes.
log.segment.delete.delay.ms LONG 60000 H cluster + >=0
    How long a deleted segment stays on disk for its last readers, in ms.
max.request.partition.size.limit INT 2000 M fixed + >=1
    Most partitions in one answer about topics.
message.max.bytes INT 1048588 H cluster + >=0
    Largest batch that is taken, in bytes, after compression.
min.insync.replicas INT 1 H cluster + >=1
    Replicas that must have a record before acks=all is answered.
num.partitions INT 1 M fixed + >=1
    Partitions of a topic whose maker does not say how many.
num.recovery.threads.per.data.dir INT 2 H cluster + >=1
    Threads for each directory that open and close its logs.
producer.id.expiration.check.interval.ms INT 600000 L fixed +i >=1
    How often producers are looked at for silent ones, in ms.
producer.id.expiration.ms INT 86400000 L cluster + >=1
    A producer that is silent this long is forgotten by a partition, in ms.
unclean.leader.election.enable BOOLEAN false H cluster +
    Whether a replica out of sync may lead when no other can; records may be lost.
unclean.leader.election.interval.ms LONG 300000 M fixed +i >=1
    How often unclean elections are tried, in ms.
"""
