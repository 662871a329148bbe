"""JSON web tokens and their keys, made for tests."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

_HASHES: dict[str, type[hashes.SHA256 | hashes.SHA384 | hashes.SHA512]] = {
    "256": hashes.SHA256,
    "384": hashes.SHA384,
    "512": hashes.SHA512,
}
_CURVES: dict[str, tuple[str, type[ec.EllipticCurve], int]] = {
    "ES256": ("P-256", ec.SECP256R1, 32),
    "ES384": ("P-384", ec.SECP384R1, 48),
    "ES512": ("P-521", ec.SECP521R1, 66),
}


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def part(content: object) -> str:
    return base64url(json.dumps(content).encode())


@cache
def rsa_key(name: str = "first") -> rsa.RSAPrivateKey:
    """A key by a name; making one takes long."""
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key(algorithm: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(_CURVES[algorithm][1]())


def signed(algorithm: str, claims: object, *, kid: str | None = "k", **header: Any) -> str:
    """A token of the first RSA key, or of the key of a curve."""
    head = {"alg": algorithm, "typ": "JWT"} | ({} if kid is None else {"kid": kid}) | header
    text = f"{part(head)}.{part(claims)}"
    digest = _HASHES[algorithm[2:]]()
    if algorithm.startswith("ES"):
        encoded = ec_key(algorithm).sign(text.encode(), ec.ECDSA(digest))
        size = _CURVES[algorithm][2]
        r, s = utils.decode_dss_signature(encoded)
        signature = r.to_bytes(size) + s.to_bytes(size)
    else:
        filler: Any = padding.PKCS1v15()
        if algorithm.startswith("PS"):
            filler = padding.PSS(padding.MGF1(digest), digest.digest_size)
        signature = rsa_key().sign(text.encode(), filler, digest)
    return f"{text}.{base64url(signature)}"


def jwk(algorithm: str = "RS256", *, kid: str | None = "k", **more: Any) -> dict[str, Any]:
    """The public part of the key that `signed` uses."""
    found: dict[str, Any] = {} if kid is None else {"kid": kid}
    if algorithm.startswith("ES"):
        curve, _, size = _CURVES[algorithm]
        point = ec_key(algorithm).public_key().public_numbers()
        found |= {"kty": "EC", "crv": curve}
        found |= {"x": base64url(point.x.to_bytes(size)), "y": base64url(point.y.to_bytes(size))}
    else:
        numbers = rsa_key().public_key().public_numbers()
        found |= {"kty": "RSA", "n": base64url(numbers.n.to_bytes(256)), "e": "AQAB"}
    return found | more


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()
