"""The settings of the clients: one class for each kind, with Kafka's names and defaults.

A field's name is Kafka's with underscores for dots, so `linger.ms` and `linger_ms` are one setting.
Users pass keywords, a dict with Kafka's names, or both; other modules only read attributes. The
classes inherit because a producer's settings *are* a client's settings and more; they are data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from headwater.client import config_values as read
from headwater.client.deserializers import deserializer
from headwater.client.errors import ConfigError
from headwater.io import Address

_log = logging.getLogger("headwater.client")

# Names that differ in librdkafka.
_OTHER_NAMES = {"sasl.mechanisms": "sasl.mechanism"}

Function = Callable[..., Any]
Bootstrap = str | Iterable[str]


def _key(default: Any, reader: read.Reader) -> Any:
    return field(default=default, metadata={"read": reader})


def _secret(reader: read.Reader) -> Any:
    """Declares a setting that is None by default and never shown."""
    return field(default=None, repr=False, metadata={"read": reader})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings of every client."""

    KIND: ClassVar[str] = "client"
    # Arguments of the client's constructor that are not settings, for hints about misspelt ones.
    ARGUMENTS: ClassVar[tuple[str, ...]] = ("bootstrap", "config")

    bootstrap_servers: tuple[Address, ...] = _key((), read.bootstrap)
    client_id: str = _key("", read.text)
    client_dns_lookup: str = _key(
        "use_all_dns_ips",
        read.one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    )
    security_protocol: str = _key(
        "PLAINTEXT", read.one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    )
    request_timeout_ms: int = _key(30_000, read.integer(1))
    retry_backoff_ms: int = _key(100, read.integer(0, read.LONG_MAX))
    retry_backoff_max_ms: int = _key(1_000, read.integer(0, read.LONG_MAX))
    reconnect_backoff_ms: int = _key(50, read.integer(0, read.LONG_MAX))
    reconnect_backoff_max_ms: int = _key(1_000, read.integer(0, read.LONG_MAX))
    socket_connection_setup_timeout_ms: int = _key(10_000, read.integer(1, read.LONG_MAX))
    socket_connection_setup_timeout_max_ms: int = _key(30_000, read.integer(1, read.LONG_MAX))
    connections_max_idle_ms: int = _key(540_000, read.integer(-1, read.LONG_MAX))
    metadata_max_age_ms: int = _key(300_000, read.integer(1, read.LONG_MAX))
    metadata_recovery_strategy: str = _key("rebootstrap", read.one_of("none", "rebootstrap"))
    metadata_recovery_rebootstrap_trigger_ms: int = _key(300_000, read.integer(0, read.LONG_MAX))
    enable_metrics_push: bool = _key(True, read.boolean)
    # TLS. Kafka's own names; those of librdkafka, with files in PEM; or an ssl.SSLContext.
    ssl_truststore_location: str | None = _key(None, read.filled_text)
    ssl_truststore_type: str = _key("PEM", read.store_type)
    ssl_truststore_password: str | None = _secret(read.filled_text)
    ssl_truststore_certificates: str | None = _key(None, read.filled_text)
    ssl_keystore_location: str | None = _key(None, read.filled_text)
    ssl_keystore_type: str = _key("PEM", read.store_type)
    ssl_keystore_password: str | None = _secret(read.filled_text)
    ssl_keystore_certificate_chain: str | None = _key(None, read.filled_text)
    ssl_keystore_key: str | None = _secret(read.filled_text)
    ssl_key_password: str | None = _secret(read.filled_text)
    ssl_ca_location: str | None = _key(None, read.filled_text)
    ssl_certificate_location: str | None = _key(None, read.filled_text)
    ssl_key_location: str | None = _key(None, read.filled_text)
    ssl_endpoint_identification_algorithm: str = _key("https", read.one_of("https", "", "none"))
    ssl_enabled_protocols: tuple[str, ...] = _key((), read.words_of("TLSv1.2", "TLSv1.3"))
    ssl_cipher_suites: tuple[str, ...] = _key((), read.words)
    ssl_context: Any = _key(None, read.tls_context)
    # SASL
    sasl_mechanism: str | None = _key(None, read.filled_text)
    sasl_username: str | None = _key(None, read.filled_text)
    sasl_password: str | None = _secret(read.optional_text)
    sasl_jaas_config: str | None = _secret(read.filled_text)
    # OAUTHBEARER: a function that returns a token (Headwater's own), or where to get tokens.
    sasl_oauthbearer_token: Function | None = _key(None, read.function)
    sasl_oauthbearer_token_endpoint_url: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_jwt_retriever_class: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_client_credentials_client_id: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_client_credentials_client_secret: str | None = _secret(read.filled_text)
    sasl_oauthbearer_scope: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_header_urlencode: bool = _key(False, read.boolean)
    sasl_oauthbearer_assertion_algorithm: str = _key("RS256", read.one_of("RS256", "ES256"))
    sasl_oauthbearer_assertion_claim_aud: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_assertion_claim_exp_seconds: int = _key(300, read.integer(0, 86_400))
    sasl_oauthbearer_assertion_claim_iss: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_assertion_claim_jti_include: bool = _key(False, read.boolean)
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = _key(60, read.integer(0, 3_600))
    sasl_oauthbearer_assertion_claim_sub: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_assertion_file: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_assertion_private_key_file: str | None = _key(None, read.filled_text)
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = _secret(read.filled_text)
    sasl_oauthbearer_assertion_template_file: str | None = _key(None, read.filled_text)
    sasl_login_connect_timeout_ms: int = _key(10_000, read.integer(1))
    sasl_login_read_timeout_ms: int = _key(10_000, read.integer(1))
    sasl_login_retry_backoff_ms: int = _key(100, read.integer(1, read.LONG_MAX))
    sasl_login_retry_backoff_max_ms: int = _key(10_000, read.integer(1, read.LONG_MAX))
    sasl_login_refresh_window_factor: float = _key(0.8, read.decimal(0.5, 1.0))
    sasl_login_refresh_window_jitter: float = _key(0.05, read.decimal(0.0, 0.25))
    sasl_login_refresh_min_period_seconds: int = _key(60, read.integer(0, 900))
    sasl_login_refresh_buffer_seconds: int = _key(300, read.integer(0, 3_600))
    # Headwater's own: how long `start` looks for a first broker.
    start_timeout_ms: int = _key(10_000, read.integer(1))
    # The settings that the user set, by Kafka's name: only a default may be adjusted.
    explicit: frozenset[str] = frozenset()

    @classmethod
    def build(
        cls,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """Reads the settings: keywords in Python's spelling, `config` with Kafka's names."""
        wanted = _gather(bootstrap, _looked_up(config or {}), settings)
        known = {each.name: each for each in fields(cls) if "read" in each.metadata}
        values: dict[str, Any] = {}
        for name, (spelled, value) in wanted.items():
            attribute = name.replace(".", "_")
            if attribute in known:
                values[attribute] = known[attribute].metadata["read"](spelled, value)
            elif name in UNUSED[cls.KIND]:
                _log.warning("%s has no effect in this client", spelled)
            else:
                raise ConfigError(_unknown(cls, name, spelled, is_keyword=spelled in settings))
        if not values.get("bootstrap_servers") and not values.get("bootstrap_controllers"):
            raise ConfigError('no bootstrap address: pass one, such as "localhost:9092"')
        values.setdefault("client_id", f"headwater-{cls.KIND}")
        return cls(**values, explicit=frozenset(wanted)).checked()

    @classmethod
    def names(cls) -> frozenset[str]:
        """Returns Kafka's names of the settings, and librdkafka's where they differ."""
        known = {each.name.replace("_", ".") for each in fields(cls) if "read" in each.metadata}
        return frozenset(known | {other for other, name in _OTHER_NAMES.items() if name in known})

    @property
    def asks_controllers(self) -> bool:
        """Whether the client talks to controllers instead of brokers (KIP-919)."""
        return False

    @property
    def contacts(self) -> tuple[Address, ...]:
        """The addresses of the first contact."""
        return self.bootstrap_servers

    def checked(self) -> Self:
        """Returns the settings with dependent defaults adjusted, or raises ConfigError."""
        for part, needed in (("ssl.", "SSL"), ("sasl.", "SASL")):
            useless = sorted(name for name in self.explicit if name.startswith(part))
            if useless and needed not in self.security_protocol.split("_"):
                _log.warning(
                    "%s has no effect with security_protocol=%s",
                    ", ".join(useless),
                    self.security_protocol,
                )
        if self.client_dns_lookup != "use_all_dns_ips":
            _log.warning(
                "client.dns.lookup=%s has no effect in this client", self.client_dns_lookup
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    KIND: ClassVar[str] = "admin"

    bootstrap_controllers: tuple[Address, ...] = _key((), read.bootstrap)
    connections_max_idle_ms: int = _key(300_000, read.integer(-1, read.LONG_MAX))
    default_api_timeout_ms: int = _key(60_000, read.integer(0))
    retries: int = _key(read.INT_MAX, read.integer(0))

    @property
    def asks_controllers(self) -> bool:
        return bool(self.bootstrap_controllers)

    @property
    def contacts(self) -> tuple[Address, ...]:
        return self.bootstrap_controllers or self.bootstrap_servers

    def checked(self) -> Self:
        if self.bootstrap_servers and self.bootstrap_controllers:
            raise ConfigError(
                "bootstrap_controllers and a bootstrap address of brokers cannot be combined: the "
                "client talks to either"
            )
        return ClientConfig.checked(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    KIND: ClassVar[str] = "producer"

    acks: int = _key(-1, read.acks)  # 0, 1, or -1 for all
    enable_idempotence: bool = _key(True, read.boolean)
    retries: int = _key(read.INT_MAX, read.integer(0))
    max_in_flight_requests_per_connection: int = _key(5, read.integer(1))
    # Kafka has 16384. Here a batch takes the memory that its records need and no more, so a
    # higher bound costs nothing.
    batch_size: int = _key(262_144, read.integer(0))
    linger_ms: int = _key(5, read.integer(0))
    buffer_memory: int = _key(33_554_432, read.integer(0, read.LONG_MAX))
    max_block_ms: int = _key(60_000, read.integer(0, read.LONG_MAX))
    max_request_size: int = _key(1_048_576, read.integer(0))
    delivery_timeout_ms: int = _key(120_000, read.integer(0))
    compression_type: str = _key("none", read.one_of("none", "gzip", "snappy", "lz4", "zstd"))
    compression_gzip_level: int = _key(-1, read.gzip_level)
    compression_lz4_level: int = _key(9, read.integer(1, 17))
    compression_zstd_level: int = _key(3, read.integer(-131_072, 22))
    partitioner_ignore_keys: bool = _key(False, read.boolean)
    partitioner_adaptive_partitioning_enable: bool = _key(True, read.boolean)
    partitioner_availability_timeout_ms: int = _key(0, read.integer(0, read.LONG_MAX))
    metadata_max_idle_ms: int = _key(300_000, read.integer(5_000, read.LONG_MAX))
    transactional_id: str | None = _key(None, read.filled_text)
    transaction_timeout_ms: int = _key(60_000, read.integer(0))
    transaction_two_phase_commit_enable: bool = _key(False, read.boolean)
    # Headwater's own: what `initTransactions` takes in Kafka, and functions and objects where
    # Kafka has class names.
    transaction_keep_prepared: bool = _key(False, read.boolean)
    key_serializer: Function | None = _key(None, read.serializer)
    value_serializer: Function | None = _key(None, read.serializer)
    partitioner: Function | None = _key(None, read.function)
    interceptors: tuple[Any, ...] = _key((), read.objects)

    def checked(self) -> Self:
        config = ClientConfig.checked(self)._with_idempotence()
        config._check_two_phase()
        least = min(config.linger_ms + config.request_timeout_ms, read.INT_MAX)
        if config.delivery_timeout_ms >= least:
            return config
        if "delivery.timeout.ms" in config.explicit:
            raise ConfigError(
                f"delivery_timeout_ms={config.delivery_timeout_ms} is below linger_ms + "
                f"request_timeout_ms, which is {least}"
            )
        return replace(config, delivery_timeout_ms=least)

    def _check_two_phase(self) -> None:
        if self.transaction_two_phase_commit_enable:
            if self.transactional_id is None:
                raise ConfigError("transaction_two_phase_commit_enable needs a transactional_id")
            if "transaction.timeout.ms" in self.explicit:
                raise ConfigError(
                    "transaction_timeout_ms has no effect with transaction_two_phase_commit_enable:"
                    " a prepared transaction never times out; give one of them"
                )
        elif self.transaction_keep_prepared:
            raise ConfigError(
                "transaction_keep_prepared needs transaction_two_phase_commit_enable=True"
            )

    def _with_idempotence(self) -> Self:
        """Disables idempotence, which is on by default, if another setting excludes it."""
        wished = self.transactional_id is not None or (
            "enable.idempotence" in self.explicit and self.enable_idempotence
        )
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ConfigError("transactional_id needs enable_idempotence=True")
        in_flight = self.max_in_flight_requests_per_connection
        obstacles = [
            text
            for text, stands in (
                (f"acks={self.acks} (it needs all)", self.acks != -1),
                ("retries=0 (it needs some)", self.retries == 0),
                (f"max_in_flight_requests_per_connection={in_flight} (at most 5)", in_flight > 5),
            )
            if stands
        ]
        if not obstacles or not self.enable_idempotence:
            return self
        # As in Kafka, more than 5 requests in flight never switch idempotence off silently.
        if wished or in_flight > 5:
            raise ConfigError("enable_idempotence contradicts " + ", ".join(obstacles))
        return replace(self, enable_idempotence=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    KIND: ClassVar[str] = "consumer"
    ARGUMENTS: ClassVar[tuple[str, ...]] = (
        *ClientConfig.ARGUMENTS,
        "group",
        "topics",
        "pattern",
        "listener",
        "on_bad_record",
        "key_deserializer",
        "value_deserializer",
    )

    group_id: str | None = _key(None, read.filled_text)
    group_instance_id: str | None = _key(None, read.filled_text)
    group_protocol: str = _key("classic", read.one_of("classic", "consumer"))
    group_remote_assignor: str | None = _key(None, read.filled_text)
    partition_assignment_strategy: tuple[Any, ...] = _key(
        ("range", "cooperative-sticky"), read.strategies
    )
    session_timeout_ms: int = _key(45_000, read.integer(1))
    heartbeat_interval_ms: int = _key(3_000, read.integer(1))
    max_poll_interval_ms: int = _key(300_000, read.integer(1))
    max_poll_records: int = _key(500, read.integer(1))
    enable_auto_commit: bool = _key(True, read.boolean)
    auto_commit_interval_ms: int = _key(5_000, read.integer(0))
    auto_offset_reset: str = _key("latest", read.offset_reset)
    isolation_level: str = _key(
        "read_uncommitted", read.one_of("read_uncommitted", "read_committed")
    )
    fetch_min_bytes: int = _key(1, read.integer(0))
    fetch_max_bytes: int = _key(52_428_800, read.integer(0))
    fetch_max_wait_ms: int = _key(500, read.integer(0))
    max_partition_fetch_bytes: int = _key(1_048_576, read.integer(0))
    check_crcs: bool = _key(True, read.boolean)
    client_rack: str = _key("", read.text)
    allow_auto_create_topics: bool = _key(True, read.boolean)
    exclude_internal_topics: bool = _key(True, read.boolean)
    default_api_timeout_ms: int = _key(60_000, read.integer(0))
    key_deserializer: Function | None = _key(None, deserializer)
    value_deserializer: Function | None = _key(None, deserializer)
    interceptors: tuple[Any, ...] = _key((), read.objects)

    def checked(self) -> Self:
        config = ClientConfig.checked(self)
        if config.group_protocol == "consumer":
            for name in (
                "session.timeout.ms",
                "heartbeat.interval.ms",
                "partition.assignment.strategy",
            ):
                if name in config.explicit:
                    raise ConfigError(
                        f"{name} is for group_protocol='classic'; with 'consumer' the broker "
                        "has a setting of the group for it"
                    )
        elif config.group_remote_assignor is not None:
            raise ConfigError("group_remote_assignor is for group_protocol='consumer'")
        elif config.heartbeat_interval_ms >= config.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={config.heartbeat_interval_ms} must be below "
                f"session_timeout_ms={config.session_timeout_ms}"
            )
        if config.group_id is None and config.enable_auto_commit:
            if "enable.auto.commit" in config.explicit:
                raise ConfigError("enable_auto_commit=True needs a group")
            return replace(config, enable_auto_commit=False)
        return config


def _gather(
    bootstrap: Bootstrap | None,
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, tuple[str, Any]]:
    """Returns all settings by Kafka's names, each as the user spelled it. Raises for one that is
    set twice."""
    wanted: dict[str, tuple[str, Any]] = {}
    if not isinstance(config, Mapping):
        raise ConfigError(f"config={config!r}: expected a dict with Kafka's names")
    for name, value in config.items():
        if not isinstance(name, str):
            raise ConfigError(f"config has the key {name!r}: expected one of Kafka's names")
        if "_" in name:
            hint = name.replace("_", ".")
            raise ConfigError(f"config has the key {name!r}: Kafka's name for it is {hint!r}")
        wanted[_known_as(name)] = (name, value)
    keywords = [
        (_known_as(name.replace("_", ".")), name, value) for name, value in settings.items()
    ]
    if bootstrap is not None:
        keywords.append(("bootstrap.servers", "bootstrap", bootstrap))
    for name, spelled, value in keywords:
        if name in wanted:
            raise ConfigError(f"{name} is set twice: {wanted[name][1]!r} and {value!r}")
        wanted[name] = (spelled, value)
    return wanted


def _looked_up(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns settings with the values that config providers have for them (KIP-297)."""
    if not isinstance(config, Mapping) or "config.providers" not in config:
        return config
    from headwater.config.providers import PROVIDERS, resolve
    from headwater.config.values import ConfigError as Refused
    from headwater.io.secrets import system_sources

    try:
        found = resolve(config, system_sources())
    except Refused as error:
        raise ConfigError(str(error)) from None
    return {
        name: value
        for name, value in found.items()
        if name != PROVIDERS and not str(name).startswith(f"{PROVIDERS}.")
    }


def _known_as(name: str) -> str:
    return _OTHER_NAMES.get(name, name)


def _unknown(cls: type[ClientConfig], name: str, spelled: str, *, is_keyword: bool) -> str:
    for other in (ProducerConfig, ConsumerConfig, AdminConfig):
        if name in other.names():
            article = "an" if cls is AdminConfig else "a"
            return f"{spelled} is a {other.KIND} setting, not {article} {cls.KIND} one"
    from difflib import get_close_matches  # loaded for a mistake only

    known = {*cls.names(), *UNUSED[cls.KIND]}
    if is_keyword:
        known |= {argument.replace("_", ".") for argument in cls.ARGUMENTS}
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    if not near:
        return f"unknown setting {spelled}"
    hint = near[0].replace(".", "_") if is_keyword else near[0]
    return f"unknown setting {spelled}; did you mean {hint}?"


# Settings that Kafka's clients have and ours ignore, with a warning: a client that moves here keeps
# its configuration.
_UNUSED_BY_ALL = frozenset(
    {
        "auto.include.jmx.reporter",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "sasl.client.callback.handler.class",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "security.providers",
        "send.buffer.bytes",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)

UNUSED: dict[str, frozenset[str]] = {
    "client": _UNUSED_BY_ALL,
    "admin": _UNUSED_BY_ALL,
    "producer": _UNUSED_BY_ALL
    | {
        "interceptor.classes",
        "partitioner.class",
    },
    "consumer": _UNUSED_BY_ALL
    | {
        "interceptor.classes",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    },
}
