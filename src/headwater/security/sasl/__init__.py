"""Authentication by SASL (RFC 4422): one machine for each mechanism that Kafka has."""

SCRAM_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}  # of mechanisms, in requests and records
SCRAM_NAMES = {number: name for name, number in SCRAM_NUMBERS.items()}
