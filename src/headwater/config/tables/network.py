"""Listeners, connections, requests, quotas and metrics."""

TABLE = """
advertised.listeners LIST null H fixed + list!?
    Addresses that clients are told to use; by default the address each client connected to.
alter.log.dirs.replication.quota.window.num INT 11 L fixed - >=1
    Number of windows kept for quotas for moves between directories.
alter.log.dirs.replication.quota.window.size.seconds INT 1 L fixed - >=1
    Length of a window for quotas for moves between directories, in seconds.
client.quota.callback.class CLASS null L fixed -
    Plugin class that sets the quotas of clients.
connection.failed.authentication.delay.ms INT 100 L fixed + >=0
    Delay of the response to a failed login, in ms, which slows down guessing.
connections.max.idle.ms LONG 600000 M fixed +
    A connection without traffic for this long is closed, in ms.
controller.quota.window.num INT 11 L fixed + >=1
    Number of windows kept for quotas for controller changes.
controller.quota.window.size.seconds INT 1 L fixed + >=1
    Length of a window for quotas for controller changes, in seconds.
controller.socket.timeout.ms INT 30000 M fixed -
    Timeout of requests to the controller, in ms.
delete.records.purgatory.purge.interval.requests INT 1 M fixed -
    When finished waits are purged; no meaning here: each is removed at once.
early.start.listeners LIST null H fixed + list?
    Listeners that open before the broker has caught up with the metadata log.
fetch.max.bytes INT 57671680 M fixed + >=1024
    Maximum number of bytes in a fetch response.
fetch.purgatory.purge.interval.requests INT 1000 M fixed -
    When finished waits are purged; no meaning here: each is removed at once.
inter.broker.listener.name STRING null M fixed +
    Listener for connections between brokers.
kafka.metrics.polling.interval.secs INT 10 L fixed - >=1
    How often metrics reporters are polled; no meaning here: they are written in Java.
kafka.metrics.reporters LIST "" L fixed - list
    Plugin classes that report Yammer metrics; no meaning here: they are written in Java.
listener.security.protocol.map STRING SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT L broker +
    Security protocol of each listener, as NAME:PROTOCOL.
listeners LIST PLAINTEXT://:9092 H broker + list!
    Addresses to listen on, as NAME://host:port; an empty host means every interface.
max.connection.creation.rate INT 2147483647 M cluster + >=0
    Maximum number of new connections per second.
max.connections INT 2147483647 M cluster + >=0
    Maximum number of connections.
max.connections.per.ip INT 2147483647 M cluster + >=0
    Maximum number of connections from one address.
max.connections.per.ip.overrides STRING "" M cluster +
    Connection limits of particular addresses, as address:count.
max.incremental.fetch.session.cache.slots INT 1000 M fixed + >=0
    Maximum number of incremental fetch sessions.
metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter L cluster - list
    Plugin classes that report metrics; no meaning here: they are written in Java.
metrics.num.samples INT 2 L fixed - >=1
    Number of samples kept for a metric.
metrics.recording.level STRING INFO L fixed -
    Recording level of metrics: INFO, DEBUG or TRACE.
metrics.sample.window.ms LONG 30000 L fixed - >=1
    Length of a sample of a metric, in ms.
num.io.threads INT 8 H cluster - >=1
    Number of threads that handle requests; no meaning here: one event loop handles them.
num.network.threads INT 3 H cluster - >=1
    Number of threads for connections; no meaning here: one event loop serves them.
producer.purgatory.purge.interval.requests INT 1000 M fixed -
    When finished waits are purged; no meaning here: each is removed at once.
queued.max.request.bytes LONG -1 M fixed +
    Maximum number of bytes of requests being received; -1 means no limit.
queued.max.requests INT 500 H fixed - >=1
    Maximum number of queued requests; no meaning here: queued.max.request.bytes bounds them.
quota.window.num INT 11 L fixed + >=1
    Number of windows kept for quotas of clients.
quota.window.size.seconds INT 1 L fixed + >=1
    Length of a window for quotas of clients, in seconds.
request.timeout.ms INT 30000 H fixed +
    Timeout of the broker's own requests, in ms.
socket.connection.setup.timeout.max.ms LONG 30000 M fixed -
    Maximum timeout for connection attempts after failures, in ms.
socket.connection.setup.timeout.ms LONG 10000 M fixed -
    Timeout of connection attempts, in ms.
socket.listen.backlog.size INT 50 M fixed + >=1
    Maximum number of connections waiting to be accepted; 512 unless it is set.
socket.receive.buffer.bytes INT 102400 H fixed +
    Size of socket receive buffers; by default, and with -1, the operating system chooses.
socket.request.max.bytes INT 104857600 H fixed + >=1
    Maximum size of a request, in bytes.
socket.send.buffer.bytes INT 102400 H fixed +
    Size of socket send buffers; by default, and with -1, the operating system chooses.
telemetry.max.bytes INT 1048576 L fixed + >=1
    Maximum size of metrics pushed by a client, in bytes.
"""  # noqa: E501
