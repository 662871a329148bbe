"""Tiered storage: what moves to a remote store, how and how fast."""

TABLE = """
follower.fetch.last.tiered.offset.enable BOOLEAN false M cluster -
    Whether a new follower starts at the last offset in the remote store.
log.local.retention.bytes LONG -2 M cluster - >=-2
    Maximum size of the local part of a tiered log, in bytes; -2 means log.retention.bytes.
log.local.retention.ms LONG -2 M cluster - >=-2
    How long segments of a tiered log stay on the local disk, in ms; -2 means log.retention.ms.
remote.fetch.max.wait.ms INT 500 M cluster - >=1
    How long a fetch may wait for the remote store, in ms.
remote.list.offsets.request.timeout.ms LONG 30000 M cluster - >=1
    How long a search for offsets may wait for the remote store, in ms.
remote.log.index.file.cache.total.size.bytes LONG 1073741824 L cluster - >=1
    Maximum size of the local cache of remote indexes, in bytes.
remote.log.index.file.cache.ttl.ms LONG 900000 L fixed -i >=-1
    A cached remote index that is unused for this long is deleted, in ms.
remote.log.manager.copier.thread.pool.size INT 10 M cluster - >=1
    Number of threads that copy segments to the remote store.
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 M cluster - >=1
    Maximum number of bytes per second copied to the remote store.
remote.log.manager.copy.quota.window.num INT 11 M fixed - >=1
    Number of windows kept for quotas for copies.
remote.log.manager.copy.quota.window.size.seconds INT 1 M fixed - >=1
    Length of a window for quotas for copies, in seconds.
remote.log.manager.expiration.thread.pool.size INT 10 M cluster - >=1
    Number of threads that delete old segments in the remote store.
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 M cluster - >=1
    Maximum number of bytes per second read from the remote store.
remote.log.manager.fetch.quota.window.num INT 11 M fixed - >=1
    Number of windows kept for quotas for remote reads.
remote.log.manager.fetch.quota.window.size.seconds INT 1 M fixed - >=1
    Length of a window for quotas for remote reads, in seconds.
remote.log.manager.follower.thread.pool.size INT 2 M cluster - >=1
    Number of threads that track the remote store for follower replicas.
remote.log.manager.task.interval.ms LONG 30000 L fixed - >=1
    How often to check for segments to copy or delete, in ms.
remote.log.manager.task.retry.backoff.max.ms LONG 30000 L fixed -i >=1
    Maximum pause before a failed remote task is retried, in ms.
remote.log.manager.task.retry.backoff.ms LONG 500 L fixed -i >=1
    Initial pause before a failed remote task is retried, in ms.
remote.log.manager.task.retry.jitter DOUBLE 0.2 L fixed -i 0.0..0.5
    Random jitter of the pauses between retries of remote tasks.
remote.log.manager.thread.pool.size INT 2 M fixed - >=1
    Number of threads that schedule tasks of tiered storage.
remote.log.metadata.custom.metadata.max.bytes INT 128 L fixed - >=0
    Maximum size of custom metadata for each remote segment, in bytes.
remote.log.metadata.manager.class.name STRING org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager M fixed - nonempty
    Plugin class that stores which segments are in the remote store.
remote.log.metadata.manager.class.path STRING null M fixed -
    Class path of the remote metadata plugin.
remote.log.metadata.manager.impl.prefix STRING rlmm.config. M fixed - nonempty
    Settings with this prefix are passed to the remote metadata plugin.
remote.log.metadata.manager.listener.name STRING null M fixed - nonempty
    Listener through which the remote metadata plugin connects to brokers.
remote.log.reader.max.pending.tasks INT 100 M fixed - >=1
    Maximum number of queued remote reads; further fetches are rejected.
remote.log.reader.threads INT 10 M cluster - >=1
    Number of threads that read from the remote store.
remote.log.storage.manager.class.name STRING null M fixed - nonempty
    Plugin class that copies segments to and from the remote store.
remote.log.storage.manager.class.path STRING null M fixed -
    Class path of the remote storage plugin.
remote.log.storage.manager.impl.prefix STRING rsm.config. M fixed - nonempty
    Settings with this prefix are passed to the remote storage plugin.
remote.log.storage.system.enable BOOLEAN false M fixed +
    Whether tiered storage is available; not supported yet, a node refuses true.
"""  # noqa: E501
