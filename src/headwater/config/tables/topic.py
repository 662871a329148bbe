"""Settings of a topic."""

TABLE = """
cleanup.policy LIST delete M cluster + list(compact|delete)
    .
compression.gzip.level INT -1 M cluster + gzip
    .
compression.lz4.level INT 9 M cluster + 1..17
    .
compression.type STRING producer M cluster + in(uncompressed|zstd|lz4|snappy|gzip|producer)
    .
compression.zstd.level INT 3 M cluster + -131072..22
    .
delete.retention.ms LONG 86400000 M cluster + >=0
    .
file.delete.delay.ms LONG 60000 M cluster + >=0
    .
flush.messages LONG 9223372036854775807 M cluster + >=1
    .
flush.ms LONG 9223372036854775807 M cluster + >=0
    .
follower.replication.throttled.replicas LIST "" M cluster + throttled
    .
index.interval.bytes INT 4096 M cluster + >=0
    .
internal.segment.bytes INT null M cluster +i
    .
leader.replication.throttled.replicas LIST "" M cluster + throttled
    .
local.retention.bytes LONG -2 M cluster + >=-2
    .
local.retention.ms LONG -2 M cluster + >=-2
    .
max.compaction.lag.ms LONG 9223372036854775807 M cluster + >=1
    .
max.message.bytes INT 1048588 M cluster + >=0
    .
message.timestamp.after.max.ms LONG 3600000 M cluster + >=0
    .
message.timestamp.before.max.ms LONG 9223372036854775807 M cluster + >=0
    .
message.timestamp.type STRING CreateTime M cluster + in(CreateTime|LogAppendTime)
    .
min.cleanable.dirty.ratio DOUBLE 0.5 M cluster + 0.0..1.0
    .
min.compaction.lag.ms LONG 0 M cluster + >=0
    .
min.insync.replicas INT 1 M cluster + >=1
    .
preallocate BOOLEAN false M cluster +
    .
remote.log.copy.disable BOOLEAN false M cluster +
    .
remote.log.delete.on.disable BOOLEAN false M cluster +
    .
remote.storage.enable BOOLEAN false M cluster +
    .
retention.bytes LONG -1 M cluster +
    .
retention.ms LONG 604800000 M cluster + >=-1
    .
segment.bytes INT 1073741824 M cluster + >=1048576
    .
segment.index.bytes INT 10485760 M cluster + >=4
    .
segment.jitter.ms LONG 0 M cluster + >=0
    .
segment.ms LONG 604800000 M cluster + >=1
    .
unclean.leader.election.enable BOOLEAN false M cluster +
    .
"""
