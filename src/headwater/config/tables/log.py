"""The log: segments, retention, compaction, and what new topics get."""

TABLE = """
auto.create.topics.enable BOOLEAN true H fixed +
    .
background.threads INT 10 H cluster - >=1
    .
compression.gzip.level INT -1 M cluster + gzip
    .
compression.lz4.level INT 9 M cluster + 1..17
    .
compression.type STRING producer H cluster + in(uncompressed|zstd|lz4|snappy|gzip|producer)
    .
compression.zstd.level INT 3 M cluster + -131072..22
    .
cordoned.log.dirs LIST "" M broker + list?
    .
create.topic.policy.class.name CLASS null L fixed -
    .
default.replication.factor INT 1 M fixed +
    .
delete.topic.enable BOOLEAN true H fixed +
    .
log.cleaner.backoff.ms LONG 15000 M cluster + >=0
    .
log.cleaner.dedupe.buffer.size LONG 134217728 M cluster +
    .
log.cleaner.delete.retention.ms LONG 86400000 M cluster + >=0
    .
log.cleaner.enable BOOLEAN true M fixed +
    .
log.cleaner.io.buffer.load.factor DOUBLE 0.9 M cluster +
    .
log.cleaner.io.buffer.size INT 524288 M cluster + >=0
    .
log.cleaner.io.max.bytes.per.second DOUBLE 1.7976931348623157E308 M cluster +
    .
log.cleaner.max.compaction.lag.ms LONG 9223372036854775807 M cluster + >=1
    .
log.cleaner.min.cleanable.ratio DOUBLE 0.5 M cluster + 0.0..1.0
    .
log.cleaner.min.compaction.lag.ms LONG 0 M cluster + >=0
    .
log.cleaner.threads INT 1 M cluster + >=0
    .
log.cleanup.policy LIST delete M cluster + list(compact|delete)
    .
log.dir LIST /tmp/kafka-logs H fixed + list!
    .
log.dir.failure.timeout.ms LONG 30000 L fixed + >=1
    .
log.dirs LIST null H fixed + list!?
    .
log.flush.interval.messages LONG 9223372036854775807 H cluster + >=1
    .
log.flush.interval.ms LONG null H cluster +
    .
log.flush.offset.checkpoint.interval.ms INT 60000 H fixed + >=0
    .
log.flush.scheduler.interval.ms LONG 9223372036854775807 H fixed +
    .
log.flush.start.offset.checkpoint.interval.ms INT 60000 H fixed + >=0
    .
log.index.interval.bytes INT 4096 M cluster + >=0
    .
log.index.size.max.bytes INT 10485760 M cluster + >=4
    .
log.initial.task.delay.ms LONG 30000 L fixed +i >=0
    .
log.message.timestamp.after.max.ms LONG 3600000 M cluster + >=0
    .
log.message.timestamp.before.max.ms LONG 9223372036854775807 M cluster + >=0
    .
log.message.timestamp.type STRING CreateTime M cluster + in(CreateTime|LogAppendTime)
    .
log.preallocate BOOLEAN false M cluster +
    .
log.retention.bytes LONG -1 H cluster +
    .
log.retention.check.interval.ms LONG 300000 M fixed + >=1
    .
log.retention.hours INT 168 H fixed +
    .
log.retention.minutes INT null H fixed +
    .
log.retention.ms LONG null H cluster +
    .
log.roll.hours INT 168 H fixed + >=1
    .
log.roll.jitter.hours INT 0 H fixed + >=0
    .
log.roll.jitter.ms LONG null H cluster +
    .
log.roll.ms LONG null H cluster +
    .
log.segment.bytes INT 1073741824 H cluster + >=1048576
    .
log.segment.delete.delay.ms LONG 60000 H cluster + >=0
    .
max.request.partition.size.limit INT 2000 M fixed + >=1
    .
message.max.bytes INT 1048588 H cluster + >=0
    .
min.insync.replicas INT 1 H cluster + >=1
    .
num.partitions INT 1 M fixed + >=1
    .
num.recovery.threads.per.data.dir INT 2 H cluster + >=1
    .
producer.id.expiration.check.interval.ms INT 600000 L fixed +i >=1
    .
producer.id.expiration.ms INT 86400000 L cluster + >=1
    .
unclean.leader.election.enable BOOLEAN false H cluster +
    .
unclean.leader.election.interval.ms LONG 300000 M fixed +i >=1
    .
"""
