"""TLS and SASL in the clients: identity and trust.

Nothing is connected here: settings and files are checked when a client is made.
"""

from __future__ import annotations

import ssl

from headwater import Admin, Consumer, Producer


def with_a_password(address: str, password: str, authority: str) -> Producer:
    # SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN, over TLS; what the system trusts is trusted by default.
    return Producer(
        address,
        security_protocol="SASL_SSL",
        ssl_ca_location=authority,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="orders",
        sasl_password=password,
    )


def with_a_certificate(address: str, authority: str, own: str) -> Consumer:
    # One file with the key and the chain, or ssl_certificate_location and ssl_key_location.
    return Consumer(
        address,
        topics=["orders"],
        security_protocol="SSL",
        ssl_truststore_location=authority,
        ssl_keystore_location=own,
    )


def with_a_token(address: str) -> Admin:
    async def token() -> str:  # asked for at each login; async or not
        return "eyJhbGciOi..."

    return Admin(
        address,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token=token,
    )


def with_a_context(address: str, context: ssl.SSLContext) -> Producer:
    # Whatever Python's ssl can do: certificates in hardware, pinned keys, other ciphers.
    return Producer(address, security_protocol="SSL", ssl_context=context)


def with_the_settings_of_a_java_client(address: str, authority: str) -> Producer:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="orders" password="...";',
    }
    return Producer(address, config=config)
