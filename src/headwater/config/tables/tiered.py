"""Tiered storage: what moves to a remote store, how and how fast."""

TABLE = """
follower.fetch.last.tiered.offset.enable BOOLEAN false M cluster -
    Whether a new follower starts at the end of what is in the remote store.
log.local.retention.bytes LONG -2 M cluster - >=-2
    Bytes of a tiered log kept on the local disk; -2 as many as log.retention.bytes.
log.local.retention.ms LONG -2 M cluster - >=-2
    How long a tiered log stays on the local disk, in ms; -2 as log.retention.ms.
remote.fetch.max.wait.ms INT 500 M cluster - >=1
    How long a fetch may wait for the remote store, in ms.
remote.list.offsets.request.timeout.ms LONG 30000 M cluster - >=1
    How long a search for offsets may wait for the remote store, in ms.
remote.log.index.file.cache.total.size.bytes LONG 1073741824 L cluster - >=1
    Most bytes of remote indexes kept on the local disk.
remote.log.index.file.cache.ttl.ms LONG 900000 L fixed -i >=-1
    A remote index not used for this long leaves the local disk, in ms.
remote.log.manager.copier.thread.pool.size INT 10 M cluster - >=1
    Threads that copy segments to the remote store.
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 M cluster - >=1
    Most bytes a second that are copied to the remote store.
remote.log.manager.copy.quota.window.num INT 11 M fixed - >=1
    How many windows count in the quota for copies.
remote.log.manager.copy.quota.window.size.seconds INT 1 M fixed - >=1
    Length of a window of the quota for copies.
remote.log.manager.expiration.thread.pool.size INT 10 M cluster - >=1
    Threads that delete old segments in the remote store.
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 M cluster - >=1
    Most bytes a second that are read from the remote store.
remote.log.manager.fetch.quota.window.num INT 11 M fixed - >=1
    How many windows count in the quota for remote reads.
remote.log.manager.fetch.quota.window.size.seconds INT 1 M fixed - >=1
    Length of a window of the quota for remote reads.
remote.log.manager.follower.thread.pool.size INT 2 M cluster - >=1
    Threads that follow the remote store for follower replicas.
remote.log.manager.task.interval.ms LONG 30000 L fixed - >=1
    How often segments are looked at for copy and deletion, in ms.
remote.log.manager.task.retry.backoff.max.ms LONG 30000 L fixed -i >=1
    Longest pause before a failed remote task is tried again, in ms.
remote.log.manager.task.retry.backoff.ms LONG 500 L fixed -i >=1
    First pause before a failed remote task is tried again, in ms.
remote.log.manager.task.retry.jitter DOUBLE 0.2 L fixed -i 0.0..0.5
    Share of chance in the pauses of remote tasks.
remote.log.manager.thread.pool.size INT 2 M fixed - >=1
    Threads that plan the work of tiered storage.
remote.log.metadata.custom.metadata.max.bytes INT 128 L fixed - >=0
    Most bytes that a store may remember with each segment.
remote.log.metadata.manager.class.name STRING org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager M fixed - nonempty
    Plugin that remembers which segments are in the remote store.
remote.log.metadata.manager.class.path STRING null M fixed -
    Where the metadata plugin's files are.
remote.log.metadata.manager.impl.prefix STRING rlmm.config. M fixed - nonempty
    Settings with this prefix go to the metadata plugin.
remote.log.metadata.manager.listener.name STRING null M fixed - nonempty
    Listener over which the metadata plugin reaches brokers.
remote.log.reader.max.pending.tasks INT 100 M fixed - >=1
    Most remote reads that wait; beyond it fetches are refused.
remote.log.reader.threads INT 10 M cluster - >=1
    Threads that read from the remote store.
remote.log.storage.manager.class.name STRING null M fixed - nonempty
    Plugin that moves segments to and from the remote store.
remote.log.storage.manager.class.path STRING null M fixed -
    Where the storage plugin's files are.
remote.log.storage.manager.impl.prefix STRING rsm.config. M fixed - nonempty
    Settings with this prefix go to the storage plugin.
remote.log.storage.system.enable BOOLEAN false M fixed +
    Whether topics may have tiered storage.
"""  # noqa: E501
