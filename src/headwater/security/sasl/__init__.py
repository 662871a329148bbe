"""How a client proves who it is (RFC 4422): one machine for each mechanism that Kafka has."""
