"""Settings of one group."""

TABLE = """
consumer.assignment.interval.ms INT 1000 M cluster + >=0
    Least time between two assignments of the consumer group, in ms.
consumer.heartbeat.interval.ms INT 5000 M cluster + >=1
    How often the group's consumers report, in ms.
consumer.session.timeout.ms INT 45000 M cluster + >=1
    A consumer that is silent this long leaves the group, in ms.
share.assignment.interval.ms INT 1000 M cluster - >=0
    Least time between two assignments of the share group, in ms.
share.auto.offset.reset STRING latest M cluster - reset
    Where a new share group begins: earliest, latest, or by_duration: and how far back.
share.delivery.count.limit INT 5 M cluster - >=2
    How often a record is delivered before it is given up.
share.heartbeat.interval.ms INT 5000 M cluster - >=1
    How often the group's share consumers report, in ms.
share.isolation.level STRING read_uncommitted M cluster - in(read_committed|read_uncommitted)
    Whether the share group sees records of open and aborted transactions.
share.partition.max.record.locks INT 2000 M cluster - >=100
    Most records of a partition that the group holds at a time.
share.record.lock.duration.ms INT 30000 M cluster - >=1000
    How long a consumer may hold a record before others get it, in ms.
share.renew.acknowledge.enable BOOLEAN true M cluster -
    Whether a consumer may ask for more time with a record it holds.
share.session.timeout.ms INT 45000 M cluster - >=1
    A share consumer that is silent this long leaves the group, in ms.
streams.assignment.interval.ms INT 1000 M cluster - >=0
    Least time between two assignments of the streams group, in ms.
streams.heartbeat.interval.ms INT 5000 M cluster - >=1
    How often the group's streams members report, in ms.
streams.initial.rebalance.delay.ms INT 3000 M cluster - >=0
    How long the group, when empty, waits for more members, in ms.
streams.num.standby.replicas INT 0 M cluster - >=0
    Warm copies that the group keeps of each task's state.
streams.session.timeout.ms INT 45000 M cluster - >=1
    A streams member that is silent this long leaves the group, in ms.
"""
