"""Group coordinator: classic, consumer, share and streams groups, and committed offsets."""

TABLE = """
group.consumer.assignment.interval.ms INT 1000 M cluster + >=0
    .
group.consumer.assignors LIST uniform,range M fixed + list!
    .
group.consumer.heartbeat.interval.ms INT 5000 M fixed + >=1
    .
group.consumer.max.assignment.interval.ms INT 15000 M fixed + >=0
    .
group.consumer.max.heartbeat.interval.ms INT 15000 M fixed + >=1
    .
group.consumer.max.session.timeout.ms INT 60000 M fixed + >=1
    .
group.consumer.max.size INT 2147483647 M fixed + >=1
    .
group.consumer.migration.policy STRING bidirectional M fixed + anycase(DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL)
    .
group.consumer.min.assignment.interval.ms INT 0 M fixed + >=0
    .
group.consumer.min.heartbeat.interval.ms INT 5000 M fixed + >=1
    .
group.consumer.min.session.timeout.ms INT 45000 M fixed + >=1
    .
group.consumer.regex.refresh.interval.ms INT 600000 M fixed +i >=10000
    .
group.consumer.session.timeout.ms INT 45000 M fixed + >=1
    .
group.coordinator.append.linger.ms INT -1 M fixed - >=-1
    .
group.coordinator.background.threads INT 2 H fixed - >=1
    .
group.coordinator.cached.buffer.max.bytes INT 1048588 M cluster - >=524288
    .
group.coordinator.rebalance.protocols LIST classic,consumer,streams M fixed + list!(consumer|classic|share|streams)
    .
group.coordinator.threads INT 4 H fixed - >=1
    .
group.initial.rebalance.delay.ms INT 3000 M fixed +
    .
group.max.session.timeout.ms INT 1800000 M fixed +
    .
group.max.size INT 2147483647 M fixed + >=1
    .
group.min.session.timeout.ms INT 6000 M fixed +
    .
group.share.assignment.interval.ms INT 1000 M cluster + >=0
    .
group.share.assignors LIST simple M fixed + list!
    .
group.share.delivery.count.limit INT 5 M fixed + 2..10
    .
group.share.heartbeat.interval.ms INT 5000 M fixed + >=1
    .
group.share.initialize.retry.interval.ms INT 30000 L fixed -i >=1
    .
group.share.max.assignment.interval.ms INT 15000 M fixed + >=0
    .
group.share.max.delivery.count.limit INT 10 M fixed + 5..25
    .
group.share.max.heartbeat.interval.ms INT 15000 M fixed + >=1
    .
group.share.max.partition.max.record.locks INT 4000 M fixed + 2000..10000
    .
group.share.max.record.lock.duration.ms INT 60000 M fixed + 30000..3600000
    .
group.share.max.session.timeout.ms INT 60000 M fixed + >=1
    .
group.share.max.share.sessions INT 2000 M fixed + >=1
    .
group.share.max.size INT 200 M fixed + 1..1000
    .
group.share.min.assignment.interval.ms INT 0 M fixed + >=0
    .
group.share.min.delivery.count.limit INT 2 M fixed + 2..5
    .
group.share.min.heartbeat.interval.ms INT 5000 M fixed + >=1
    .
group.share.min.partition.max.record.locks INT 100 M fixed + 100..2000
    .
group.share.min.record.lock.duration.ms INT 15000 M fixed + 1000..30000
    .
group.share.min.session.timeout.ms INT 45000 M fixed + >=1
    .
group.share.partition.max.record.locks INT 2000 M fixed + 100..10000
    .
group.share.persister.class.name STRING org.apache.kafka.server.share.persister.DefaultStatePersister M fixed -i
    .
group.share.record.lock.duration.ms INT 30000 M fixed + 1000..3600000
    .
group.share.session.timeout.ms INT 45000 M fixed + >=1
    .
group.streams.assignment.interval.ms INT 1000 M cluster + >=0
    .
group.streams.heartbeat.interval.ms INT 5000 M fixed + >=1
    .
group.streams.initial.rebalance.delay.ms INT 3000 M fixed + >=0
    .
group.streams.max.assignment.interval.ms INT 15000 M fixed + >=0
    .
group.streams.max.heartbeat.interval.ms INT 15000 M fixed + >=1
    .
group.streams.max.session.timeout.ms INT 60000 M fixed + >=1
    .
group.streams.max.size INT 2147483647 M fixed + >=1
    .
group.streams.max.standby.replicas INT 2 M fixed + >=0
    .
group.streams.min.assignment.interval.ms INT 0 M fixed + >=0
    .
group.streams.min.heartbeat.interval.ms INT 5000 M fixed + >=1
    .
group.streams.min.session.timeout.ms INT 45000 M fixed + >=1
    .
group.streams.num.standby.replicas INT 0 M fixed + >=0
    .
group.streams.session.timeout.ms INT 45000 M fixed + >=1
    .
offset.metadata.max.bytes INT 4096 H fixed +
    .
offsets.commit.timeout.ms INT 5000 H fixed + >=1
    .
offsets.load.buffer.size INT 5242880 H fixed + >=1
    .
offsets.retention.check.interval.ms LONG 600000 H fixed + >=1
    .
offsets.retention.minutes INT 10080 H fixed + >=1
    .
offsets.topic.compression.codec INT 0 H fixed +
    .
offsets.topic.num.partitions INT 50 H fixed + >=1
    .
offsets.topic.replication.factor SHORT 3 H fixed + >=1
    .
offsets.topic.segment.bytes INT 104857600 H fixed + >=1
    .
"""  # noqa: E501
