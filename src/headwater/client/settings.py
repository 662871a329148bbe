"""The keyword arguments of the clients as types, for editors and type checkers.

For `**settings: Unpack[ProducerSettings]`. Meaning, defaults and checks are in `config.py`; a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from ssl import SSLContext
from typing import Any, Literal, TypedDict


class ClientSettings(TypedDict, total=False):
    client_id: str
    client_dns_lookup: str
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: Literal["none", "rebootstrap"]
    metadata_recovery_rebootstrap_trigger_ms: int
    enable_metrics_push: bool
    ssl_truststore_location: str | None
    ssl_truststore_type: str
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_location: str | None
    ssl_keystore_type: str
    ssl_keystore_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_key_password: str | None
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None
    ssl_endpoint_identification_algorithm: str
    ssl_enabled_protocols: str | Sequence[str]
    ssl_cipher_suites: str | Sequence[str]
    ssl_context: SSLContext | None
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_jaas_config: str | None
    sasl_oauthbearer_token: Callable[[], str | Awaitable[str]] | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_jwt_retriever_class: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"]
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    start_timeout_ms: int


class AdminSettings(ClientSettings, total=False):
    bootstrap_controllers: str | Iterable[str]
    default_api_timeout_ms: int
    retries: int


class ProducerSettings(ClientSettings, total=False):
    acks: Literal[0, 1, -1, "0", "1", "-1", "all"]
    enable_idempotence: bool
    retries: int
    max_in_flight_requests_per_connection: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    delivery_timeout_ms: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    metadata_max_idle_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    transaction_keep_prepared: bool
    key_serializer: Callable[[Any], bytes | None] | None
    value_serializer: Callable[[Any], bytes | None] | None
    partitioner: Callable[..., int] | None
    interceptors: Iterable[Any]


class ConsumerSettings(ClientSettings, total=False):
    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    isolation_level: Literal["read_uncommitted", "read_committed"]
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    client_rack: str
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    default_api_timeout_ms: int
    interceptors: Iterable[Any]
