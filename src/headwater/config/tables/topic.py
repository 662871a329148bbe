"""Settings of a topic."""

TABLE = """
cleanup.policy LIST delete M cluster + list(compact|delete)
    How old records are handled: delete, compact, or both; empty keeps everything.
compression.gzip.level INT -1 M cluster + gzip
    Compression level of gzip, 1 to 9; -1 is the library's default.
compression.lz4.level INT 9 M cluster + 1..17
    Compression level of lz4, 1 to 17.
compression.type STRING producer M cluster + in(uncompressed|zstd|lz4|snappy|gzip|producer)
    Codec in which batches are stored; producer keeps the producer's choice.
compression.zstd.level INT 3 M cluster + -131072..22
    Compression level of zstd; levels below 1 are faster and compress less.
delete.retention.ms LONG 86400000 M cluster + >=0
    How long compaction keeps tombstones, in ms, so that consumers can see them.
file.delete.delay.ms LONG 60000 M cluster + >=0
    How long a deleted segment stays on disk for its last readers, in ms.
flush.messages LONG 9223372036854775807 M cluster + >=1
    The log is flushed to disk after this many records.
flush.ms LONG 9223372036854775807 M cluster + >=0
    Maximum time before the log is flushed to disk, in ms.
follower.replication.throttled.replicas LIST "" M cluster - throttled
    Followers to which the replication quota applies: partition:broker, or * for all.
index.interval.bytes INT 4096 M cluster + >=0
    Number of bytes of the log between two index entries.
internal.segment.bytes INT null M cluster +i
    Size of a segment without a lower bound, for tests.
leader.replication.throttled.replicas LIST "" M cluster - throttled
    Leaders to which the replication quota applies: partition:broker, or * for all.
local.retention.bytes LONG -2 M cluster - >=-2
    Maximum size of the local part of a tiered log, in bytes; -2 means retention.bytes.
local.retention.ms LONG -2 M cluster - >=-2
    How long segments of a tiered log stay on the local disk, in ms; -2 means retention.ms.
max.compaction.lag.ms LONG 9223372036854775807 M cluster + >=1
    Maximum time that a record stays uncompacted, in ms.
max.message.bytes INT 1048588 M cluster + >=0
    Maximum size of a record batch, in bytes, after compression.
message.timestamp.after.max.ms LONG 3600000 M cluster + >=0
    How far a record's timestamp may be ahead of the broker's clock, in ms.
message.timestamp.before.max.ms LONG 9223372036854775807 M cluster + >=0
    How far a record's timestamp may be behind the broker's clock, in ms.
message.timestamp.type STRING CreateTime M cluster + in(CreateTime|LogAppendTime)
    Whether a record's timestamp is set by its producer or at the time of the append.
min.cleanable.dirty.ratio DOUBLE 0.5 M cluster + 0.0..1.0
    Minimum ratio of uncompacted to total bytes for the log to be compacted.
min.compaction.lag.ms LONG 0 M cluster + >=0
    Minimum time that a record stays uncompacted, in ms.
min.insync.replicas INT 1 M cluster + >=1
    Minimum number of in-sync replicas for a write with acks=all.
preallocate BOOLEAN false M cluster +
    Whether segment files are preallocated when they are created.
remote.log.copy.disable BOOLEAN false M cluster -
    Whether copying segments to the remote store stops; those already copied stay readable.
remote.log.delete.on.disable BOOLEAN false M cluster -
    Whether disabling tiered storage also deletes the segments in the remote store.
remote.storage.enable BOOLEAN false M cluster -
    Whether closed segments are copied to the remote store; not supported yet.
retention.bytes LONG -1 M cluster +
    Maximum size of a partition's log before old segments are deleted, in bytes; -1 means no limit.
retention.ms LONG 604800000 M cluster + >=-1
    How long records are kept, in ms; -1 means forever.
segment.bytes INT 1073741824 M cluster + >=1048576
    Maximum size of a segment, in bytes.
segment.index.bytes INT 10485760 M cluster + >=4
    Maximum size of a segment's index, in bytes; a full index rolls the segment.
segment.jitter.ms LONG 0 M cluster + >=0
    Maximum random jitter subtracted from segment.ms, so that segments do not all roll at once.
segment.ms LONG 604800000 M cluster + >=1
    Maximum age of a segment before it is rolled, in ms, even if it is not full.
unclean.leader.election.enable BOOLEAN false M cluster +
    Whether a replica that is not in sync may lead as a last resort, which can lose records.
"""
