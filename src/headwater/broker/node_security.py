"""TLS and SASL of a node, made from its settings in one place: its listeners and its own logins.

Each listener with protection has a `ListenerGate`, which its connections pass. `for_brokers` and
`for_controllers` are what the node presents where it connects itself. A change of settings or of a
file makes all of it anew, and nothing changes unless all of it can be made.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from headwater.broker.authentication import Authentication, SaslSettings
from headwater.broker.bearer_keys import BearerKeys
from headwater.broker.plugins import Build, NoPrincipal, Peer, PrincipalBuilders
from headwater.config import ConfigError, NodeConfig
from headwater.config.catalog import broker_definitions
from headwater.config.listeners import PLAINTEXT
from headwater.config.values import ConfigValue
from headwater.io import Host
from headwater.io.tls import (
    Trust,
    client_context,
    file_stamp,
    handshake_failure,
    read_file,
    server_context,
)
from headwater.metadata import Image
from headwater.net import Connection
from headwater.net.connection import CloseConnection
from headwater.net.oauth.tokens import token_keeper
from headwater.net.peer import Login, PeerSecurity
from headwater.net.peer.security import PeerSource
from headwater.observability import Log, printable
from headwater.security.certificates import CertificateNames, names_of
from headwater.security.mapping import PrincipalMapping
from headwater.security.oauth import OAuthRefused, shown
from headwater.security.principal import ANONYMOUS, Principal
from headwater.security.sasl.jaas import JaasEntry, jaas_entry_for
from headwater.security.sasl.scram_server import Find, ScramSecret, ScramServer
from headwater.security.sasl.server import (
    BearerServer,
    PlainServer,
    PlainUsers,
    SaslRefused,
    SaslServer,
)
from headwater.security.stores import (
    NEEDS_EXTRA,
    Store,
    first_certificate,
    normalized_pem,
    read_store,
)
from headwater.security.tokens import SECRET_KEY, TokenSecrets

_KEY_BYTES = 32
_NONCE_BITS = 160
# By the numbers of UserScramCredentialRecord.
_SCRAM = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_PREAUTH_BYTES_MAX = 512 * 1024
_FILES = ("ssl.keystore.location", "ssl.truststore.location")


class _StoreKeys(NamedTuple):
    location: str
    type: str
    password: str


_KEY_STORE = _StoreKeys("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password")
_TRUST_STORE = _StoreKeys(
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password"
)


class Material(NamedTuple):
    """Keys and certificates of one listener."""

    trust: Trust
    own: CertificateNames | None  # of the certificate that it presents
    certificate: bytes | None  # that, in DER form


@dataclass(slots=True)
class ListenerGate:
    """The gate of one listener. Its fields change with the settings of the node."""

    context: ssl.SSLContext | None
    mapping: PrincipalMapping
    sasl: SaslSettings | None
    own: CertificateNames | None = None
    certificate: bytes | None = None  # its own, in DER form
    protocol: str = PLAINTEXT
    build: Build | None = None  # the principal builder

    def opened(self, connection: Connection) -> None:
        if self.sasl is not None:
            Authentication(self._sasl_now, connection.dispatch).begin(connection)
        elif self.context is None:  # nothing else comes before the first request
            self._identify(connection, ANONYMOUS)
            connection.proven()

    def _sasl_now(self) -> SaslSettings:
        assert self.sasl is not None, "the protocol of a listener does not change"
        return self.sasl

    def secured(self, connection: Connection, certificate: bytes | None) -> None:
        if self.sasl is not None:
            return  # the login says who it is
        user, subject = ANONYMOUS, None
        if certificate is not None:
            try:
                subject = names_of(certificate).subject
            except ValueError as error:
                raise CloseConnection(f"its certificate cannot be read: {error}") from None
            name = self.mapping.name_of(subject)
            if name is None:
                raise CloseConnection(
                    f"no rule of ssl.principal.mapping.rules matches {printable(subject)}"
                )
            user = Principal("User", name)
        self._identify(connection, user, subject)
        connection.proven()

    def _identify(
        self, connection: Connection, user: Principal, subject: str | None = None
    ) -> None:
        """Gives a connection its principal; raises CloseConnection if it gets none."""
        if self.build is not None:
            peer = Peer(
                connection.listener,
                self.protocol,
                connection.stream.peer.host,
                user.name,
                subject=subject,
            )
            try:
                user = self.build(peer)
            except NoPrincipal as refusal:
                raise CloseConnection(printable(str(refusal))) from None
        connection.principal = user

    def take(self, new: ListenerGate) -> None:
        """Becomes like another gate, for the connections from now on."""
        self.context, self.mapping = new.context, new.mapping
        self.sasl, self.own, self.certificate = new.sasl, new.own, new.certificate
        # Not the protocol, nor the principal builder: they last as long as the listener.


class _Made(NamedTuple):
    """Everything that is made from one state of the settings."""

    gates: dict[str, ListenerGate]
    brokers: PeerSecurity | None
    controllers: PeerSecurity | None
    trusts: dict[str, Trust]  # with which nodes meet each other, by listener
    stamps: dict[str, tuple[int, int, int]]


class NodeSecurity:
    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        lines: Log,
        image: Callable[[], Image],
        builders: PrincipalBuilders,
    ) -> None:
        """`image` is the metadata with the users of SCRAM. Raises ConfigError."""
        self._builders = builders
        self._host = host
        self._lines = lines
        self._image = image
        self._key = host.random.randbytes(_KEY_BYTES)
        self._config = config
        token_key = config.value(SECRET_KEY)
        self._token_secrets = TokenSecrets(str(token_key)) if token_key else None
        self._bearer_keys = BearerKeys(host, lines)
        self._made = self._make(config)

    async def run(self) -> None:
        """Keeps the keys of bearer tokens fresh."""
        await self._bearer_keys.run()

    async def loaded(self) -> None:
        """Returns when logins can be checked, or cannot be for a while."""
        await self._bearer_keys.loaded()

    # What the node uses

    def gate(self, listener: str) -> ListenerGate | None:
        """Returns the gate of one of this node's listeners, None where it has no protection."""
        return self._made.gates.get(listener)

    def for_brokers(self) -> PeerSecurity | None:
        return self._made.brokers

    def for_controllers(self) -> PeerSecurity | None:
        return self._made.controllers

    # Changes while the node runs

    def check(self, config: NodeConfig) -> None:
        """Raises ConfigError if these settings cannot take the place of the current ones."""
        self._check_change(self._make(config))

    def reload(self, config: NodeConfig) -> list[str]:
        """Applies new settings or new files; returns the listeners that changed. Raises
        ConfigError, and goes on as before then."""
        made = self._make(config)
        self._check_change(made)
        changed = []
        gates = {}
        for name, new in made.gates.items():
            gate = gates[name] = self._made.gates.get(name, new)
            if new.certificate != gate.certificate:
                changed.append(name)
            gate.take(new)
        self._config = config
        self._made = made._replace(gates=gates)
        return changed

    def _has_changed_files(self) -> bool:
        """Returns whether a file with keys or certificates was written or replaced."""
        for path, stamp in self._made.stamps.items():
            try:
                if file_stamp(path) != stamp:
                    return True
            except OSError:
                continue  # it is being replaced
        return False

    def follow_files(self) -> None:
        """Uses files with keys and certificates that were written or replaced. Those that cannot be
        used are reported once, and the node goes on with what it has."""
        if not self._has_changed_files():
            return
        try:
            changed = self.reload(self._config)
        except ConfigError as error:
            self._made = self._made._replace(stamps=self._stamps(self._config))
            self._lines.error(f"changed keys or certificates are not used: {error}")
        else:
            what = f": new certificate of {', '.join(changed)}" if changed else ""
            self._lines.info(f"changed keys or certificates are in use{what}")

    def _check_change(self, made: _Made) -> None:
        """Refuses a certificate for somebody else (KIP-1119), and one that other nodes refuse."""
        for name, new in made.gates.items():
            before = self._made.gates.get(name)
            if before is None or before.own is None or new.own is None:
                continue
            key = "ssl.allow.dn.changes"
            if not self._config.value(key) and before.own.subject != new.own.subject:
                raise ConfigError(
                    "ssl.keystore.location",
                    new.own.subject,
                    f"expected the subject of the certificate of listener {name}, "
                    f"{before.own.subject}, unless {key} is true",
                )
            key = "ssl.allow.san.changes"
            if not self._config.value(key) and not before.own.alternatives <= new.own.alternatives:
                raise ConfigError(
                    "ssl.keystore.location",
                    new.own.subject,
                    f"expected all subject alternative names of the certificate of listener "
                    f"{name}, unless {key} is true",
                )
        for name, trust in made.trusts.items():
            self._check_trust(name, trust, made)

    def _check_trust(self, name: str, trust: Trust, made: _Made) -> None:
        """Refuses keys that would cut this node off, as Kafka does: nodes are changed one after the
        other, so those with the old and those with the new keys have to trust each other. Where
        they did not before, there is nothing to keep."""
        trust_before = self._made.trusts.get(name)
        gate, gate_before = made.gates.get(name), self._made.gates.get(name)
        if trust_before in (None, trust) or gate is None or gate_before is None:
            return
        server, server_before = gate.context, gate_before.context
        assert trust_before is not None
        assert server is not None
        assert server_before is not None
        # One name or another: any certificate has the right one.
        client, client_before = (
            client_context(replace(each, check_name=False)) for each in (trust, trust_before)
        )
        if handshake_failure(server_before, client_before) is not None:
            return
        pairs = ((server, client_before), (server_before, client), (server, client))
        for failure in (handshake_failure(*pair) for pair in pairs):
            if failure is not None:
                raise ConfigError(
                    f"listener.name.{name.lower()}.ssl.keystore",
                    "" if gate.own is None else gate.own.subject,
                    f"expected a certificate that nodes with the old and with the new trust store "
                    f"accept on listener {name} ({_reason(failure)}); add its authority to the "
                    "trust stores of all nodes first",
                )

    # Making it

    def _make(self, config: NodeConfig) -> _Made:
        gates = {}
        for at in config.listeners:
            if at.protocol != PLAINTEXT or self._builders.of(at.name) is not None:
                gates[at.name] = self._gate(config, at.name, at.protocol)
        brokers = controllers = None
        if config.is_broker:
            brokers = self._peer(
                config,
                config.inter_broker_listener_name,
                "sasl.mechanism.inter.broker.protocol",
                self.for_brokers,
            )
        if not config.alone and config.controller_listener_names:
            controllers = self._peer(
                config,
                config.controller_listener_names[0],
                "sasl.mechanism.controller.protocol",
                self.for_controllers,
            )
        return _Made(gates, brokers, controllers, _trusts(config), self._stamps(config))

    def _gate(self, config: NodeConfig, name: str, protocol: str) -> ListenerGate:
        rules = str(config.listener_value(name, "ssl.principal.mapping.rules") or "DEFAULT")
        try:
            mapping = PrincipalMapping(rules)
        except ValueError as error:
            raise ConfigError("ssl.principal.mapping.rules", rules, str(error)) from None
        context = own = certificate = None
        if protocol.endswith("SSL"):
            material = _material(config, name)
            if material.own is None:
                key = "ssl.keystore.location"
                raise ConfigError(
                    f"listener.name.{name.lower()}.{key}",
                    "",
                    f"expected a key and a certificate for listener {name}; set this, {key}, or "
                    "ssl.keystore.key and ssl.keystore.certificate.chain",
                )
            own, certificate = material.own, material.certificate
            context = self._server_context(config, name, protocol, material.trust)
        build = self._builders.of(name)
        sasl = self._sasl(config, name, protocol, build) if protocol.startswith("SASL") else None
        return ListenerGate(context, mapping, sasl, own, certificate, protocol, build)

    def _server_context(
        self, config: NodeConfig, name: str, protocol: str, trust: Trust
    ) -> ssl.SSLContext:
        key = "ssl.client.auth"
        # As in Kafka, only the listener's own setting counts where a login says who it is.
        value = (
            config.listener_only(name, key)
            if protocol.startswith("SASL")
            else config.listener_value(name, key)
        )
        client_auth = str(value or "none")
        if client_auth != "none" and trust.ca_pem is None:
            raise ConfigError(
                key,
                client_auth,
                f"expected ssl.truststore.location or ssl.truststore.certificates for listener "
                f"{name}: they say which certificates of clients to accept",
            )
        try:
            return server_context(trust, client_auth)
        except (OSError, ValueError) as error:
            raise _unusable(name, error) from None

    def _sasl(
        self, config: NodeConfig, name: str, protocol: str, build: Build | None
    ) -> SaslSettings:
        enabled = config.listener_value(name, "sasl.enabled.mechanisms")
        assert isinstance(enabled, tuple)
        servers = {mechanism: self._server_of(config, name, mechanism) for mechanism in enabled}
        lifetimes = {
            mechanism: _number(config, name, "connections.max.reauth.ms", mechanism)
            for mechanism in enabled
        }
        return SaslSettings(
            servers,
            lifetimes,
            min(_number(config, name, "sasl.server.max.receive.size"), _PREAUTH_BYTES_MAX),
            config.connection_failed_authentication_delay_ms / 1000,
            self._host.clock,
            self._lines,
            self._identify_by(build, protocol) if build is not None else None,
        )

    @staticmethod
    def _identify_by(
        build: Build, protocol: str
    ) -> Callable[[Connection, str, Principal], Principal]:
        def identify(connection: Connection, mechanism: str, user: Principal) -> Principal:
            host = connection.stream.peer.host
            try:
                return build(Peer(connection.listener, protocol, host, user.name, mechanism))
            except NoPrincipal as refusal:
                raise SaslRefused(str(refusal), user=user.name) from None

        return identify

    def _server_of(self, config: NodeConfig, name: str, mechanism: str) -> Callable[[], SaslServer]:
        if mechanism == "PLAIN":
            entry = _jaas(config, name, mechanism)
            if entry is None:
                raise ConfigError(
                    _jaas_key(name, mechanism),
                    "",
                    "expected the users who may log in: "
                    "org.apache.kafka.common.security.plain.PlainLoginModule required "
                    'user_NAME="PASSWORD";',
                )
            users = PlainUsers(entry.users, self._key)
            return lambda: PlainServer(users.check)
        if mechanism in _SCRAM:
            _jaas(config, name, mechanism)  # it may be missing, but not wrong
            find = self._find(mechanism)
            return lambda: ScramServer(mechanism, find, self._nonce(), self._key)
        entry = _jaas(config, name, mechanism)
        validator = self._bearer_keys.validator(
            config, name, {} if entry is None else entry.options
        )
        return lambda: BearerServer(validator.validate)

    def _nonce(self) -> str:
        return f"{self._host.random.getrandbits(_NONCE_BITS):x}"

    def _find(self, mechanism: str) -> Find:
        number = _SCRAM[mechanism]
        token_secrets = self._token_secrets

        def find(name: str, is_token: bool) -> ScramSecret | None:
            if is_token:
                if token_secrets is None:
                    return None
                token = self._image().tokens.get(name)
                return token_secrets.find(token, mechanism, self._host.clock.wall_ms())
            found = self._image().scram.get((name, number))
            if found is None:
                return None
            return ScramSecret(
                found.salt,
                found.stored_key,
                found.server_key,
                found.iterations,
                Principal("User", name),
            )

        return find

    def _peer(
        self, config: NodeConfig, name: str, mechanism_key: str, source: PeerSource
    ) -> PeerSecurity | None:
        """Returns what this node presents where it connects to a listener of other nodes."""
        protocol = config.protocol_of(name)
        if protocol == PLAINTEXT:
            return None
        context = login = None
        if protocol.endswith("SSL"):
            trust = _material(config, name).trust
            check = config.listener_value(name, "ssl.endpoint.identification.algorithm")
            try:
                context = client_context(replace(trust, check_name=bool(check)))
            except (OSError, ValueError) as error:
                raise _unusable(name, error) from None
        if protocol.startswith("SASL"):
            login = _login(
                config, name, str(config.value(mechanism_key)), is_needed=not config.alone
            )
        return PeerSecurity(context, login, renewed_by=source)

    def _stamps(self, config: NodeConfig) -> dict[str, tuple[int, int, int]]:
        stamps = {}
        for path in _paths(config):
            try:
                stamps[path] = file_stamp(path)
            except OSError:
                continue
        return stamps


def _number(config: NodeConfig, name: str, key: str, mechanism: str | None = None) -> int:
    value = config.listener_value(name, key, mechanism)
    assert isinstance(value, int)
    return value


def _unusable(name: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"listener.name.{name.lower()}.ssl", "", f"TLS cannot be set up: {_reason(error)}"
    )


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).lower().replace("_", " ")


# Keys and certificates


def _used_listeners(config: NodeConfig) -> list[str]:
    names = [at.name for at in config.listeners]
    names += [config.inter_broker_listener_name] if config.is_broker else []
    names += config.controller_listener_names[:1]
    return [name for name in dict.fromkeys(names) if config.protocol_of(name).endswith("SSL")]


def _trusts(config: NodeConfig) -> dict[str, Trust]:
    """Returns what this node presents to other nodes and trusts of them. A node by itself meets
    none."""
    if config.alone:
        return {}
    names = [config.inter_broker_listener_name] if config.is_broker else []
    names += config.controller_listener_names[:1]
    encrypted = [name for name in names if config.protocol_of(name).endswith("SSL")]
    return {name: _material(config, name).trust for name in encrypted}


def _paths(config: NodeConfig) -> list[str]:
    found = (config.listener_value(name, key) for name in _used_listeners(config) for key in _FILES)
    return list(dict.fromkeys(str(path) for path in found if path))


def _material(config: NodeConfig, name: str) -> Material:
    def text(key: str) -> str | None:
        value = config.listener_value(name, key)
        return str(value) if value else None

    def texts(key: str) -> tuple[str, ...]:
        value = config.listener_value(name, key)
        assert isinstance(value, tuple)
        return value

    key_password = text("ssl.key.password")
    inline = text("ssl.keystore.certificate.chain")
    if inline is not None:
        chain: str | None
        key, chain = text("ssl.keystore.key"), _pem("ssl.keystore.certificate.chain", inline)
        key = None if key is None else _pem("ssl.keystore.key", key)
    else:
        store = _store(config, name, _KEY_STORE, key_password)
        key, chain = store.key, store.chain
        if store.key is not None and text("ssl.keystore.type") != "PEM":
            key_password = None  # it is decrypted
    trusted: str | None
    inline = text("ssl.truststore.certificates")
    if inline is not None:
        trusted = _pem("ssl.truststore.certificates", inline)
    else:
        found = _store(config, name, _TRUST_STORE, None)
        path = text(_TRUST_STORE.location)
        try:
            trusted = None if path is None else found.anchors()
        except ValueError as error:
            raise ConfigError(_TRUST_STORE.location, path, str(error)) from None
    own = first = None
    if chain is not None and key is not None:
        first = first_certificate(chain)
        try:
            own = None if first is None else names_of(first)
        except ValueError as error:
            raise ConfigError(
                f"listener.name.{name.lower()}.ssl.keystore", "", f"certificate: {error}"
            ) from None
    trust = Trust(
        ca_pem=trusted,
        chain_pem=chain if own is not None else None,
        key_pem=key,
        key_password=key_password,
        versions=texts("ssl.enabled.protocols"),
        ciphers=":".join(texts("ssl.cipher.suites")) or None,
    )
    return Material(trust, own, first)


def _pem(key: str, text: str) -> str:
    try:
        return normalized_pem(text)
    except ValueError as error:
        raise ConfigError(key, text, str(error), secret=True) from None


def _store(config: NodeConfig, name: str, keys: _StoreKeys, key_password: str | None) -> Store:
    key = keys.location
    path = config.listener_value(name, key)
    if not path:
        return Store(None, None, None)
    password = config.listener_value(name, keys.password)
    kind = str(config.listener_value(name, keys.type))
    try:
        return read_store(
            read_file(str(path)), kind, str(password) if password else None, key_password
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(key, path, f"it cannot be read: {reason}") from None
    except ValueError as error:
        raise ConfigError(key, path, str(error)) from None
    except ImportError:
        raise ConfigError(key, path, NEEDS_EXTRA) from None


# Logins


def _jaas_key(name: str, mechanism: str) -> str:
    return f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _jaas(config: NodeConfig, name: str, mechanism: str) -> JaasEntry | None:
    """Returns the credentials of one listener and mechanism. As in Kafka, those for all listeners
    or all mechanisms do not count on a node."""
    text = config.listener_only(name, "sasl.jaas.config", mechanism)
    if not text:
        return None
    try:
        return jaas_entry_for(mechanism, str(text))
    except ValueError as error:
        raise ConfigError(_jaas_key(name, mechanism), "", str(error), secret=True) from None


def _bearer_login(
    config: NodeConfig, name: str, entry: JaasEntry | None, *, is_needed: bool
) -> Login | None:
    def get(key: str) -> ConfigValue:
        # Clients have a setting or two that brokers of Kafka do not.
        known = key in broker_definitions()
        return config.listener_value(name, key, "OAUTHBEARER") if known else None

    url = "sasl.oauthbearer.token.endpoint.url"
    if not is_needed and not get(url):
        return None  # a node by itself connects to no other
    try:
        token = token_keeper(get, {} if entry is None else entry.options)
    except OAuthRefused as error:
        given = shown(str(get(url) or ""))
        raise ConfigError(url, given, str(error).removeprefix(f"{url}={given} ")) from None
    return Login("OAUTHBEARER", token=token, extensions=None if entry is None else entry.extensions)


def _login(config: NodeConfig, name: str, mechanism: str, *, is_needed: bool) -> Login | None:
    entry = _jaas(config, name, mechanism)
    options = {} if entry is None else entry.options
    if mechanism == "OAUTHBEARER":
        return _bearer_login(config, name, entry, is_needed=is_needed)
    user, password = options.get("username"), options.get("password")
    if user and password is not None:
        return Login(mechanism, user, password)
    if not is_needed:
        return None  # a node by itself connects to no other
    raise ConfigError(
        _jaas_key(name, mechanism),
        "",
        f'expected username="..." password="...", with which this node logs in to listener {name} '
        "of other nodes",
        secret=True,
    )
