"""Security of connections: TLS and SASL from a client's settings.

Contradictory settings and unreadable files are refused when the client is made; what the broker
thinks of them turns out at the first connection.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Mapping
from typing import Any

from headwater.client.config import ClientConfig
from headwater.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConfigError,
    Disconnected,
    NotKafka,
)
from headwater.io import Host
from headwater.io.tls import Trust, client_context, is_pem, read_file
from headwater.net.peer.security import Login, PeerSecurity, TokenSource
from headwater.security.sasl.jaas import jaas_options
from headwater.security.sasl.scram import DIGESTS
from headwater.security.stores import NEEDS_EXTRA, Store, read_store

MECHANISMS = ("PLAIN", *DIGESTS, "OAUTHBEARER")
_FILES = (
    "ssl_truststore_location",
    "ssl_ca_location",
    "ssl_keystore_location",
    "ssl_certificate_location",
    "ssl_key_location",
    "ssl_cipher_suites",
)
# In a broker's refusal of our certificate, or of a missing one.
_ABOUT_US = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")


def security_of(config: ClientConfig) -> PeerSecurity:
    """Reads the files that the settings name. Raises ConfigError."""
    protocol = config.security_protocol
    return PeerSecurity(
        _context(config) if protocol.endswith("SSL") else None,
        _login(config) if protocol.startswith("SASL") else None,
    )


# TLS


def _context(config: ClientConfig) -> ssl.SSLContext:
    if config.ssl_context is not None:
        context: ssl.SSLContext = config.ssl_context
        return context
    try:
        return client_context(_trust(config))
    except (OSError, ValueError) as error:
        given = [f"{name}={value!r}" for name in _FILES if (value := getattr(config, name))]
        what = "TLS cannot be set up" + (f" with {', '.join(given)}" if given else "")
        raise ConfigError(f"{what}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).lower().replace("_", " ")


def _trust(config: ClientConfig) -> Trust:
    chain = config.ssl_certificate_location or config.ssl_keystore_location
    ca = config.ssl_ca_location or config.ssl_truststore_location
    ca_pem, chain_pem = config.ssl_truststore_certificates, config.ssl_keystore_certificate_chain
    key_pem, key_password = config.ssl_keystore_key, config.ssl_key_password
    trusted = _store(config, "ssl_truststore")
    if trusted is not None:
        ca, ca_pem = None, trusted.anchors()
    own = _store(config, "ssl_keystore")
    if own is not None:  # its key is decrypted
        chain, chain_pem, key_pem, key_password = None, own.chain, own.key, None
    return Trust(
        ca_path=ca,
        ca_pem=ca_pem,
        chain_path=chain,
        key_path=config.ssl_key_location,
        chain_pem=chain_pem,
        key_pem=key_pem,
        key_password=key_password,
        check_name=config.ssl_endpoint_identification_algorithm == "https",
        versions=config.ssl_enabled_protocols,
        ciphers=":".join(config.ssl_cipher_suites) or None,
    )


def _store(config: ClientConfig, name: str) -> Store | None:
    """Returns what a JKS or PKCS12 store holds; None for none, and for PEM, which OpenSSL reads."""
    path = getattr(config, f"{name}_location")
    if path is None or is_pem(path):
        return None
    password = getattr(config, f"{name}_password")
    # PKCS12 whatever the type says, if it is left at PEM: Java reads both formats as either.
    kind = getattr(config, f"{name}_type")
    try:
        return read_store(
            read_file(path), "PKCS12" if kind == "PEM" else kind, password, config.ssl_key_password
        )
    except ImportError:
        raise ConfigError(f"{name}_location={path!r} {NEEDS_EXTRA}") from None


def tls_failed(who: str, error: ssl.SSLError) -> ClientError:
    """Returns the error behind a TLS failure, with advice."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(
            f"{who}: its certificate cannot be trusted: {error.verify_message}; "
            "ssl_truststore_location (or ssl_ca_location) names the certificates to trust"
        )
    reason = _reason(error).upper().replace(" ", "_")
    if any(word in reason for word in _ABOUT_US):
        return AuthenticationFailed(
            f"{who}: it rejects our certificate, or requires one ({reason}); "
            "ssl_keystore_location (or ssl_certificate_location) names ours"
        )
    if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason or "RECORD_LAYER" in reason:
        return NotKafka(
            f"{who} does not speak TLS: use the port of an SSL or SASL_SSL listener, or "
            "another security_protocol"
        )
    return Disconnected(f"{who}: TLS failed: {reason.lower().replace('_', ' ')}")


# SASL


def _login(config: ClientConfig) -> Login:
    mechanism = config.sasl_mechanism
    if mechanism not in MECHANISMS:
        what = "is needed" if mechanism is None else f"is {mechanism!r}"
        raise ConfigError(
            f"security_protocol={config.security_protocol!r}: sasl_mechanism {what}; supported are "
            + ", ".join(MECHANISMS)
        )
    options = _jaas(config)
    if mechanism == "OAUTHBEARER":
        return Login(
            mechanism, token=_token_source(config, options), extensions=_extensions(options)
        )
    username = config.sasl_username or options.get("username")
    password = config.sasl_password or options.get("password")
    if not username or password is None:
        raise ConfigError(
            f"sasl_mechanism={mechanism!r} needs sasl_username and sasl_password, or a "
            "sasl_jaas_config that has them"
        )
    is_token = options.get("tokenauth", "").lower() == "true"
    return Login(mechanism, username, password, is_token=is_token)


def _token_source(config: ClientConfig, options: Mapping[str, str]) -> TokenSource:
    source = config.sasl_oauthbearer_token
    if source is None:
        return _token_keeper(config, options)

    async def token(host: Host) -> str:
        try:
            given = source()
            if inspect.isawaitable(given):
                given = await given
        except Exception as error:
            raise AuthenticationFailed(
                f"sasl_oauthbearer_token returned no token: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(given, str) or not given:
            raise AuthenticationFailed(
                f"sasl_oauthbearer_token returned {type(given).__name__}: expected a token as text"
            )
        return given

    return token


def _token_keeper(config: ClientConfig, options: Mapping[str, str]) -> TokenSource:
    if config.sasl_oauthbearer_token_endpoint_url is None:
        raise ConfigError(
            "sasl_mechanism='OAUTHBEARER' needs sasl_oauthbearer_token, a function, async or not, "
            "that returns a token, or sasl_oauthbearer_token_endpoint_url"
        )
    from headwater.net.oauth.tokens import token_keeper  # with an HTTP client
    from headwater.security.oauth import OAuthRefused

    def get(name: str) -> Any:
        return getattr(config, name.replace(".", "_"))

    try:
        return token_keeper(get, options)
    except OAuthRefused as error:
        raise ConfigError(str(error)) from None


def _jaas(config: ClientConfig) -> dict[str, str]:
    if config.sasl_jaas_config is None:
        return {}
    try:
        return jaas_options(config.sasl_jaas_config)
    except ValueError as error:
        raise ConfigError(f"sasl_jaas_config cannot be read: {error}") from None


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the extensions that go with a token (KIP-342)."""
    start = "extension_"
    return {
        name.removeprefix(start): value for name, value in options.items() if name.startswith(start)
    }
