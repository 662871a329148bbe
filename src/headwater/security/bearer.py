"""Bearer tokens (JWT, RFC 7519): which ones a server accepts, and whom they name.

The keys come from a JWKS (RFC 7517) that a driver keeps fresh. Nothing in a token decides how it is
checked: its algorithm has to be in the list and fit the key, and keys or addresses of keys inside
of it are ignored. Signatures are checked by `cryptography`.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.security.sasl.server import InvalidToken

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

TOKEN_BYTES_MAX = 64 * 1024
JWKS_BYTES_MAX = 1024 * 1024
_KEYS_MAX = 1_000
_NAME_CHARS_MAX = 1_024
_SCOPES_MAX = 1_000
_RSA_BITS_MIN, _RSA_BITS_MAX = 2_048, 16_384

# Never `none`, and no HMAC: its key would be shared with everybody who can read the JWKS.
_RSA = {"RS256": "SHA256", "RS384": "SHA384", "RS512": "SHA512", "PS256": "SHA256"}
_EC = {"ES256": ("P-256", "SHA256"), "ES384": ("P-384", "SHA384"), "ES512": ("P-521", "SHA512")}
_CURVES = {"P-256": ("SECP256R1", 32), "P-384": ("SECP384R1", 48), "P-521": ("SECP521R1", 66)}
ALGORITHMS = (*_RSA, *_EC)
_TYPES = (None, "JWT", "AT+JWT", "APPLICATION/AT+JWT")


class Key(NamedTuple):
    """A public key of a JWKS."""

    id: str | None
    type: str  # RSA, or the name of a curve
    algorithm: str | None  # the only one it may be used with, if it says so
    public: RSAPublicKey | EllipticCurvePublicKey


class VerifiedToken(NamedTuple):
    """The user that a valid token names, and its expiry."""

    name: str
    expires_at_ms: int
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The claims that a token must have, from `sasl.oauthbearer.*`."""

    audiences: Sequence[str] = ()
    issuer: str | None = None
    skew_seconds: int = 30
    name_claim: str = "sub"
    scope_claim: str = "scope"


class BearerValidator:
    """Validates tokens. `keys` returns the keys that are known now; `on_unknown_key` is told of a
    key id that is not among them, for which the JWKS may have to be read again."""

    __slots__ = ("_keys", "_now_ms", "_on_unknown_key", "_rules")

    def __init__(
        self,
        rules: TokenRules,
        keys: Callable[[], Sequence[Key]],
        now_ms: Callable[[], int],
        on_unknown_key: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms
        self._on_unknown_key = on_unknown_key

    def validate(self, token: str) -> VerifiedToken:
        """Raises InvalidToken, whose text has no part of the token."""
        if len(token) > TOKEN_BYTES_MAX:
            raise InvalidToken(f"it has {len(token)} bytes, at most {TOKEN_BYTES_MAX} are accepted")
        parts = token.split(".")
        if len(parts) != 3 or not token.isascii():
            raise InvalidToken("it is not a signed JWT")
        header = _json(_decoded(parts[0], "header"), "header")
        algorithm = _algorithm(header)
        signature = _decoded(parts[2], "signature")
        key = self._key(header, algorithm)
        _verify(key, algorithm, signature, f"{parts[0]}.{parts[1]}".encode())
        # Nothing in the claims counts before the signature is right.
        return accepted(
            _json(_decoded(parts[1], "claims"), "claims"), self._rules, self._now_ms() / 1000
        )

    def _key(self, header: Mapping[str, Any], algorithm: str) -> Key:
        wanted = header.get("kid")
        if wanted is not None and (not isinstance(wanted, str) or len(wanted) > _NAME_CHARS_MAX):
            raise InvalidToken("its kid is not a short text")
        kind = "RSA" if algorithm in _RSA else _EC[algorithm][0]
        fit = [
            key
            for key in self._keys()
            if key.type == kind
            and key.algorithm in (None, algorithm)
            and (wanted is None or key.id == wanted)
        ]
        if len(fit) == 1:
            return fit[0]
        if fit:
            raise InvalidToken("it has no kid, and several keys of the JWKS fit its algorithm")
        self._on_unknown_key(wanted)
        raise InvalidToken(f"the JWKS has no key for its kid and {algorithm}")


# The token


def _algorithm(header: Mapping[str, Any]) -> str:
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidToken(f"its algorithm is not one of {', '.join(ALGORITHMS)}")
    if "crit" in header:
        raise InvalidToken("its header has critical extensions, none of which is known")
    kind = header.get("typ")
    if (kind.upper() if isinstance(kind, str) else kind) not in _TYPES:
        raise InvalidToken("its type is not JWT")
    return algorithm


def accepted(claims: Mapping[str, Any], rules: TokenRules, now: float) -> VerifiedToken:
    """Returns whom the claims name; raises InvalidToken where they break a rule."""
    expires = _time(claims, "exp")
    issued = _time(claims, "iat")
    not_before = _time(claims, "nbf") if "nbf" in claims else issued
    skew = rules.skew_seconds
    if now >= expires + skew:
        raise InvalidToken("it has expired")
    if not_before > now + skew:
        raise InvalidToken("it is not valid yet (nbf)")
    if issued > now + skew:
        raise InvalidToken("it was issued in the future (iat)")
    if expires <= issued:
        raise InvalidToken("it expires before it was issued")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("its issuer (iss) is not sasl.oauthbearer.expected.issuer")
    _check_audience(claims.get("aud"), rules.audiences)
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not name.strip() or len(name) > _NAME_CHARS_MAX:
        raise InvalidToken(f"its claim {rules.name_claim} is not a name")
    scopes = _scopes(claims.get(rules.scope_claim), rules.scope_claim)
    return VerifiedToken(name, int(expires * 1000), scopes)


def _check_audience(audience: Any, expected: Sequence[str]) -> None:
    named = [audience] if isinstance(audience, str) else audience
    if not expected:
        if named is not None:
            raise InvalidToken(
                "it is for an audience (aud), and sasl.oauthbearer.expected.audience is not set"
            )
        return
    if not isinstance(named, list) or not any(each in expected for each in named):
        raise InvalidToken("its audience (aud) is not in sasl.oauthbearer.expected.audience")


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise InvalidToken(f"its claim {name} is not a time")
    return float(value)


def _scopes(value: Any, name: str) -> tuple[str, ...]:
    scopes = value.split() if isinstance(value, str) else value or []
    if (
        not isinstance(scopes, list)
        or len(scopes) > _SCOPES_MAX
        or not all(isinstance(each, str) and each.strip() for each in scopes)
    ):
        raise InvalidToken(f"its claim {name} is not a scope")
    return tuple(scopes)


def _verify(key: Key, algorithm: str, signature: bytes, signed: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, utils

    wrong = InvalidToken("its signature is wrong")
    try:
        if algorithm in _RSA:
            digest = getattr(hashes, _RSA[algorithm])()
            if algorithm.startswith("PS"):
                filler: Any = padding.PSS(padding.MGF1(digest), digest.digest_size)
            else:
                filler = padding.PKCS1v15()
            key.public.verify(signature, signed, filler, digest)  # type: ignore[call-arg]
            return
        curve, digest_name = _EC[algorithm]
        size = _CURVES[curve][1]
        if len(signature) != 2 * size:
            raise wrong
        numbers = (int.from_bytes(signature[:size]), int.from_bytes(signature[size:]))
        encoded = utils.encode_dss_signature(*numbers)
        digest = getattr(hashes, digest_name)()
        key.public.verify(encoded, signed, ec.ECDSA(digest))  # type: ignore[call-arg,arg-type]
    except (InvalidSignature, ValueError):
        raise wrong from None


def _decoded(part: str, what: str) -> bytes:
    try:
        if "=" in part:
            raise ValueError
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (NotBase64, ValueError):
        raise InvalidToken(f"its {what} is not in base64url") from None


def _json(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise InvalidToken(f"its {what} is not valid JSON") from None
    if not isinstance(found, dict):
        raise InvalidToken(f"its {what} is not a JSON object")
    return found


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses names that are given twice, of which two readers may take different ones."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = value
    return found


# Keys


def read_jwks(data: bytes) -> list[Key]:
    """Returns the keys of a JWKS that check signatures; others are left out. Raises ValueError with
    what is wrong with it, and ImportError without `cryptography`."""
    if len(data) > JWKS_BYTES_MAX:
        raise ValueError(f"it has {len(data)} bytes, at most {JWKS_BYTES_MAX} are accepted")
    try:
        found = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise ValueError("it is not valid JSON") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or len(listed) > _KEYS_MAX:
        raise ValueError(f"it has no list of at most {_KEYS_MAX} keys")
    return [key for each in listed if isinstance(each, dict) and (key := _read_key(each))]


def _read_key(key: dict[str, Any]) -> Key | None:
    operations = key.get("key_ops")
    if key.get("use", "sig") != "sig" or (
        operations is not None
        and "verify" not in (operations if isinstance(operations, list) else ())
    ):
        return None
    key_id, algorithm = key.get("kid"), key.get("alg")
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
        return None
    try:
        if key.get("kty") == "RSA":
            return Key(key_id, "RSA", algorithm, _rsa_key(key))
        curve = key.get("crv")
        if key.get("kty") == "EC" and isinstance(curve, str) and curve in _CURVES:
            return Key(key_id, curve, algorithm, _ec_key(key))
    except (ValueError, OverflowError, InvalidToken):
        return None
    return None


def _number(key: Mapping[str, Any], name: str) -> int:
    value = key.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is missing")
    return int.from_bytes(_decoded(value, name))


def _rsa_key(key: Mapping[str, Any]) -> RSAPublicKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    modulus, exponent = _number(key, "n"), _number(key, "e")
    if not _RSA_BITS_MIN <= modulus.bit_length() <= _RSA_BITS_MAX or exponent.bit_length() > 64:
        raise ValueError("the key is too short or too long")
    return RSAPublicNumbers(exponent, modulus).public_key()


def _ec_key(key: Mapping[str, Any]) -> EllipticCurvePublicKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    curve = getattr(ec, _CURVES[key["crv"]][0])()
    # Raises ValueError for a point that is not on the curve.
    return ec.EllipticCurvePublicNumbers(_number(key, "x"), _number(key, "y"), curve).public_key()
