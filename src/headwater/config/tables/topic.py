"""Settings of a topic."""

TABLE = """
cleanup.policy LIST delete M cluster + list(compact|delete)
    What happens to old records: delete, compact, or both; empty keeps all.
compression.gzip.level INT -1 M cluster + gzip
    Level for gzip, 1 to 9; -1 is the library's own choice.
compression.lz4.level INT 9 M cluster + 1..17
    Level for lz4, 1 to 17.
compression.type STRING producer M cluster + in(uncompressed|zstd|lz4|snappy|gzip|producer)
    Codec in which batches are kept; producer keeps what the producer chose.
compression.zstd.level INT 3 M cluster + -131072..22
    Level for zstd; below 1 is quicker and larger.
delete.retention.ms LONG 86400000 M cluster + >=0
    How long compaction keeps a deletion mark, in ms, so that readers see it.
file.delete.delay.ms LONG 60000 M cluster + >=0
    How long a deleted segment stays on disk for its last readers, in ms.
flush.messages LONG 9223372036854775807 M cluster + >=1
    The log is forced to disk after this many records.
flush.ms LONG 9223372036854775807 M cluster + >=0
    The log is forced to disk after at most this time, in ms.
follower.replication.throttled.replicas LIST "" M cluster - throttled
    Followers under the replication quota: partition:broker, or * for all.
index.interval.bytes INT 4096 M cluster + >=0
    Bytes of log between two entries of its index.
internal.segment.bytes INT null M cluster +i
    Size of a segment without a lower bound, for tests.
leader.replication.throttled.replicas LIST "" M cluster - throttled
    Leaders under the replication quota: partition:broker, or * for all.
local.retention.bytes LONG -2 M cluster - >=-2
    Bytes of a tiered log kept on the local disk; -2 as many as retention.bytes.
local.retention.ms LONG -2 M cluster - >=-2
    How long a tiered log stays on the local disk, in ms; -2 as long as retention.ms.
max.compaction.lag.ms LONG 9223372036854775807 M cluster + >=1
    A record is compacted no later than this after its write, in ms.
max.message.bytes INT 1048588 M cluster + >=0
    Largest batch that is taken, in bytes, after compression.
message.timestamp.after.max.ms LONG 3600000 M cluster + >=0
    How far a record's time may be ahead of the broker's clock, in ms.
message.timestamp.before.max.ms LONG 9223372036854775807 M cluster + >=0
    How far a record's time may be behind the broker's clock, in ms.
message.timestamp.type STRING CreateTime M cluster + in(CreateTime|LogAppendTime)
    Whether a record has its producer's time or the time of its append.
min.cleanable.dirty.ratio DOUBLE 0.5 M cluster + 0.0..1.0
    Share of the log that must be uncompacted before it is worth a run.
min.compaction.lag.ms LONG 0 M cluster + >=0
    A record stays uncompacted at least this long, in ms.
min.insync.replicas INT 1 M cluster + >=1
    Replicas that must have a record before acks=all is answered.
preallocate BOOLEAN false M cluster +
    Whether a segment gets its whole size on disk when it is made.
remote.log.copy.disable BOOLEAN false M cluster -
    Whether no more segments go to the remote store; those there stay readable.
remote.log.delete.on.disable BOOLEAN false M cluster -
    Whether turning tiered storage off also deletes what is in the remote store.
remote.storage.enable BOOLEAN false M cluster -
    Whether closed segments are copied to the remote store.
retention.bytes LONG -1 M cluster +
    A partition's log is cut to this many bytes; -1 means no bound.
retention.ms LONG 604800000 M cluster + >=-1
    How long records are kept, in ms; -1 means for ever.
segment.bytes INT 1073741824 M cluster + >=1048576
    A segment ends when it has this many bytes.
segment.index.bytes INT 10485760 M cluster + >=4
    Largest index of a segment, in bytes; a full index rolls the segment.
segment.jitter.ms LONG 0 M cluster + >=0
    Most ms by which a segment ends earlier, so that not all end at once.
segment.ms LONG 604800000 M cluster + >=1
    A segment ends after this time, in ms, even if it is not full.
unclean.leader.election.enable BOOLEAN false M cluster +
    Whether a replica out of sync may lead when no other can; records may be lost.
"""
