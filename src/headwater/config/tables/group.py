"""Settings of one group."""

TABLE = """
consumer.assignment.interval.ms INT 1000 M cluster + >=0
    Minimum time between two assignments of the consumer group, in ms.
consumer.heartbeat.interval.ms INT 5000 M cluster + >=1
    Heartbeat interval of the group's consumers, in ms.
consumer.session.timeout.ms INT 45000 M cluster + >=1
    A consumer that sends no heartbeat for this long is removed from the group, in ms.
share.assignment.interval.ms INT 1000 M cluster - >=0
    Minimum time between two assignments of the share group, in ms.
share.auto.offset.reset STRING latest M cluster - reset
    Where a new share group starts: earliest, latest, or by_duration:DURATION.
share.delivery.count.limit INT 5 M cluster - >=2
    Maximum number of delivery attempts for a record.
share.heartbeat.interval.ms INT 5000 M cluster - >=1
    Heartbeat interval of the group's share consumers, in ms.
share.isolation.level STRING read_uncommitted M cluster - in(read_committed|read_uncommitted)
    Whether the share group receives records of open and aborted transactions.
share.partition.max.record.locks INT 2000 M cluster - >=100
    Maximum number of records of a partition that the group holds at a time.
share.record.lock.duration.ms INT 30000 M cluster - >=1000
    How long a consumer may hold a record before it is offered to others, in ms.
share.renew.acknowledge.enable BOOLEAN true M cluster -
    Whether a consumer may extend the time for which it holds a record.
share.session.timeout.ms INT 45000 M cluster - >=1
    A share consumer that sends no heartbeat for this long is removed from the group, in ms.
streams.assignment.interval.ms INT 1000 M cluster - >=0
    Minimum time between two assignments of the streams group, in ms.
streams.heartbeat.interval.ms INT 5000 M cluster - >=1
    Heartbeat interval of the group's streams members, in ms.
streams.initial.rebalance.delay.ms INT 3000 M cluster - >=0
    How long the group, when empty, waits for more members before its first rebalance, in ms.
streams.num.standby.replicas INT 0 M cluster - >=0
    Number of standby copies of each task's state.
streams.session.timeout.ms INT 45000 M cluster - >=1
    A streams member that sends no heartbeat for this long is removed from the group, in ms.
"""
