"""Tiered storage: what moves to a remote store, how and how fast."""

TABLE = """
follower.fetch.last.tiered.offset.enable BOOLEAN false M cluster -
    .
log.local.retention.bytes LONG -2 M cluster + >=-2
    .
log.local.retention.ms LONG -2 M cluster + >=-2
    .
remote.fetch.max.wait.ms INT 500 M cluster - >=1
    .
remote.list.offsets.request.timeout.ms LONG 30000 M cluster - >=1
    .
remote.log.index.file.cache.total.size.bytes LONG 1073741824 L cluster - >=1
    .
remote.log.index.file.cache.ttl.ms LONG 900000 L fixed -i >=-1
    .
remote.log.manager.copier.thread.pool.size INT 10 M cluster - >=1
    .
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 M cluster - >=1
    .
remote.log.manager.copy.quota.window.num INT 11 M fixed - >=1
    .
remote.log.manager.copy.quota.window.size.seconds INT 1 M fixed - >=1
    .
remote.log.manager.expiration.thread.pool.size INT 10 M cluster - >=1
    .
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 M cluster - >=1
    .
remote.log.manager.fetch.quota.window.num INT 11 M fixed - >=1
    .
remote.log.manager.fetch.quota.window.size.seconds INT 1 M fixed - >=1
    .
remote.log.manager.follower.thread.pool.size INT 2 M cluster - >=1
    .
remote.log.manager.task.interval.ms LONG 30000 L fixed - >=1
    .
remote.log.manager.task.retry.backoff.max.ms LONG 30000 L fixed -i >=1
    .
remote.log.manager.task.retry.backoff.ms LONG 500 L fixed -i >=1
    .
remote.log.manager.task.retry.jitter DOUBLE 0.2 L fixed -i 0.0..0.5
    .
remote.log.manager.thread.pool.size INT 2 M fixed - >=1
    .
remote.log.metadata.custom.metadata.max.bytes INT 128 L fixed - >=0
    .
remote.log.metadata.manager.class.name STRING org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager M fixed - nonempty
    .
remote.log.metadata.manager.class.path STRING null M fixed -
    .
remote.log.metadata.manager.impl.prefix STRING rlmm.config. M fixed - nonempty
    .
remote.log.metadata.manager.listener.name STRING null M fixed - nonempty
    .
remote.log.reader.max.pending.tasks INT 100 M fixed - >=1
    .
remote.log.reader.threads INT 10 M cluster - >=1
    .
remote.log.storage.manager.class.name STRING null M fixed - nonempty
    .
remote.log.storage.manager.class.path STRING null M fixed -
    .
remote.log.storage.manager.impl.prefix STRING rsm.config. M fixed - nonempty
    .
remote.log.storage.system.enable BOOLEAN false M fixed -
    .
"""  # noqa: E501
