"""Group coordinator: classic, consumer, share and streams groups, and committed offsets."""

TABLE = """
group.consumer.assignment.interval.ms INT 1000 M cluster + >=0
    Minimum time between two assignments of a consumer group, in ms.
group.consumer.assignors LIST uniform,range M fixed + list!
    Assignors for consumer groups; the first is used where members name none.
group.consumer.heartbeat.interval.ms INT 5000 M fixed + >=1
    Heartbeat interval of members of consumer groups, in ms.
group.consumer.max.assignment.interval.ms INT 15000 M fixed + >=0
    Maximum value of a group's consumer.assignment.interval.ms.
group.consumer.max.heartbeat.interval.ms INT 15000 M fixed + >=1
    Maximum value of a group's consumer.heartbeat.interval.ms.
group.consumer.max.session.timeout.ms INT 60000 M fixed + >=1
    Maximum value of a group's consumer.session.timeout.ms.
group.consumer.max.size INT 2147483647 M fixed + >=1
    Maximum number of members of a consumer group.
group.consumer.migration.policy STRING bidirectional M fixed + anycase(DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL)
    Directions in which groups may convert between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms INT 0 M fixed + >=0
    Minimum value of a group's consumer.assignment.interval.ms.
group.consumer.min.heartbeat.interval.ms INT 5000 M fixed + >=1
    Minimum value of a group's consumer.heartbeat.interval.ms.
group.consumer.min.session.timeout.ms INT 45000 M fixed + >=1
    Minimum value of a group's consumer.session.timeout.ms.
group.consumer.regex.refresh.interval.ms INT 600000 M fixed +i >=10000
    How often pattern subscriptions are evaluated again, in ms.
group.consumer.session.timeout.ms INT 45000 M fixed + >=1
    A consumer that sends no heartbeat for this long is removed from its group, in ms.
group.coordinator.append.linger.ms INT -1 M fixed - >=-1
    How long a coordinator collects writes, in ms; -1 lets it choose.
group.coordinator.background.threads INT 2 H fixed - >=1
    Number of threads for background tasks of groups; no meaning here: the event loop runs them.
group.coordinator.cached.buffer.max.bytes INT 1048588 M cluster - >=524288
    Maximum size of a write buffer kept for reuse; no meaning here: none is kept.
group.coordinator.rebalance.protocols LIST classic,consumer,streams M fixed + list!(consumer|classic|share|streams)
    Group protocols that are enabled.
group.coordinator.threads INT 4 H fixed - >=1
    Number of threads of the group coordinator; no meaning here: it runs on the event loop.
group.initial.rebalance.delay.ms INT 3000 M fixed +
    How long an empty classic group waits for more members before its first rebalance, in ms.
group.max.session.timeout.ms INT 1800000 M fixed +
    Maximum session timeout of members of classic groups, in ms.
group.max.size INT 2147483647 M fixed + >=1
    Maximum number of members of a classic group.
group.min.session.timeout.ms INT 6000 M fixed +
    Minimum session timeout of members of classic groups, in ms.
group.share.assignment.interval.ms INT 1000 M cluster - >=0
    Minimum time between two assignments of a share group, in ms.
group.share.assignors LIST simple M fixed - list!
    Assignors for share groups.
group.share.delivery.count.limit INT 5 M fixed - 2..10
    Maximum number of delivery attempts for a record.
group.share.heartbeat.interval.ms INT 5000 M fixed - >=1
    Heartbeat interval of members of share groups, in ms.
group.share.initialize.retry.interval.ms INT 30000 L fixed -i >=1
    Pause before the initialization of a share partition is retried, in ms.
group.share.max.assignment.interval.ms INT 15000 M fixed - >=0
    Maximum value of a group's share.assignment.interval.ms.
group.share.max.delivery.count.limit INT 10 M fixed - 5..25
    Maximum value of a group's share.delivery.count.limit.
group.share.max.heartbeat.interval.ms INT 15000 M fixed - >=1
    Maximum value of a group's share.heartbeat.interval.ms.
group.share.max.partition.max.record.locks INT 4000 M fixed - 2000..10000
    Maximum value of a group's share.partition.max.record.locks.
group.share.max.record.lock.duration.ms INT 60000 M fixed - 30000..3600000
    Maximum value of a group's share.record.lock.duration.ms.
group.share.max.session.timeout.ms INT 60000 M fixed - >=1
    Maximum value of a group's share.session.timeout.ms.
group.share.max.share.sessions INT 2000 M fixed - >=1
    Maximum number of share sessions on a broker.
group.share.max.size INT 200 M fixed - 1..1000
    Maximum number of members of a share group.
group.share.min.assignment.interval.ms INT 0 M fixed - >=0
    Minimum value of a group's share.assignment.interval.ms.
group.share.min.delivery.count.limit INT 2 M fixed - 2..5
    Minimum value of a group's share.delivery.count.limit.
group.share.min.heartbeat.interval.ms INT 5000 M fixed - >=1
    Minimum value of a group's share.heartbeat.interval.ms.
group.share.min.partition.max.record.locks INT 100 M fixed - 100..2000
    Minimum value of a group's share.partition.max.record.locks.
group.share.min.record.lock.duration.ms INT 15000 M fixed - 1000..30000
    Minimum value of a group's share.record.lock.duration.ms.
group.share.min.session.timeout.ms INT 45000 M fixed - >=1
    Minimum value of a group's share.session.timeout.ms.
group.share.partition.max.record.locks INT 2000 M fixed - 100..10000
    Maximum number of records of a partition that a share group holds at a time.
group.share.persister.class.name STRING org.apache.kafka.server.share.persister.DefaultStatePersister M fixed -i
    Plugin class that stores the state of share groups.
group.share.record.lock.duration.ms INT 30000 M fixed - 1000..3600000
    How long a consumer may hold a record before it is offered to others, in ms.
group.share.session.timeout.ms INT 45000 M fixed - >=1
    A share consumer that sends no heartbeat for this long is removed from its group, in ms.
group.streams.assignment.interval.ms INT 1000 M cluster - >=0
    Minimum time between two assignments of a streams group, in ms.
group.streams.heartbeat.interval.ms INT 5000 M fixed - >=1
    Heartbeat interval of members of streams groups, in ms.
group.streams.initial.rebalance.delay.ms INT 3000 M fixed - >=0
    How long an empty streams group waits for more members before its first rebalance, in ms.
group.streams.max.assignment.interval.ms INT 15000 M fixed - >=0
    Maximum value of a group's streams.assignment.interval.ms.
group.streams.max.heartbeat.interval.ms INT 15000 M fixed - >=1
    Maximum value of a group's streams.heartbeat.interval.ms.
group.streams.max.session.timeout.ms INT 60000 M fixed - >=1
    Maximum value of a group's streams.session.timeout.ms.
group.streams.max.size INT 2147483647 M fixed - >=1
    Maximum number of members of a streams group.
group.streams.max.standby.replicas INT 2 M fixed - >=0
    Maximum value of a group's streams.num.standby.replicas.
group.streams.min.assignment.interval.ms INT 0 M fixed - >=0
    Minimum value of a group's streams.assignment.interval.ms.
group.streams.min.heartbeat.interval.ms INT 5000 M fixed - >=1
    Minimum value of a group's streams.heartbeat.interval.ms.
group.streams.min.session.timeout.ms INT 45000 M fixed - >=1
    Minimum value of a group's streams.session.timeout.ms.
group.streams.num.standby.replicas INT 0 M fixed - >=0
    Number of standby copies of each task's state in a streams group.
group.streams.session.timeout.ms INT 45000 M fixed - >=1
    A streams member that sends no heartbeat for this long is removed from its group, in ms.
offset.metadata.max.bytes INT 4096 H fixed +
    Maximum size of the metadata committed with an offset, in bytes.
offsets.commit.timeout.ms INT 5000 H fixed + >=1
    How long an offset commit may wait for replication, in ms.
offsets.load.buffer.size INT 5242880 H fixed - >=1
    Number of bytes read at a time when offsets are loaded.
offsets.retention.check.interval.ms LONG 600000 H fixed + >=1
    How often to check for expired offsets, in ms.
offsets.retention.minutes INT 10080 H fixed + >=1
    How long offsets of an empty group are kept, in minutes.
offsets.topic.compression.codec INT 0 H fixed -
    Compression codec of the offsets topic as a number; 0 is none.
offsets.topic.num.partitions INT 50 H fixed + >=1
    Number of partitions of the offsets topic; do not change it once the topic exists.
offsets.topic.replication.factor SHORT 3 H fixed + >=1
    Replication factor of the offsets topic.
offsets.topic.segment.bytes INT 104857600 H fixed + >=1
    Segment size of the offsets topic, in bytes; smaller segments load faster.
"""  # noqa: E501
