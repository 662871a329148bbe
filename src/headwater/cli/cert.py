"""`headwater cert`: certificates for development."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from pathlib import Path

from headwater.cli.errors import USAGE, CommandError
from headwater.cli.extras import install_command

_EXAMPLES = """\
examples:
  headwater cert dev                             certificates for localhost in ./certificates
  headwater cert dev /srv/certs --host broker-1.example --host 10.0.0.5
  headwater cert dev --client alice --client bob

writes, as PEM:
  ca.pem          what clients trust (ssl.truststore.location)
  ca-key.pem      the key of the authority; keep it to yourself
  server.pem      key and certificate of the nodes (ssl.keystore.location)
  client-NAME.pem key and certificate of a client
A second call in the same directory keeps the existing authority and renews the certificates.
For development and tests only: nothing here is revoked, rotated or audited.
"""

_CLIENT = re.compile(r"[A-Za-z0-9._\-]{1,64}")
_HOSTS = ("localhost", "127.0.0.1", "::1")


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("action", choices=("dev",), help="make certificates for development")
    parser.add_argument(
        "directory", nargs="?", default="certificates", help="where (default: ./certificates)"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="a host name or address of a node, besides localhost; may be repeated",
    )
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME",
        help="name of a client to make a certificate for; may be repeated (default: client)",
    )
    parser.add_argument(
        "--days", type=int, default=365, help="how long they are valid (default: 365)"
    )
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    if options.days < 1:
        raise CommandError(f"--days {options.days}: expected at least 1", code=USAGE)
    for name in options.client:
        if _CLIENT.fullmatch(name) is None:
            raise CommandError(
                f"--client {name}: expected letters, digits, dots, dashes and underscores",
                code=USAGE,
            )
    try:
        from headwater.security.dev_certificates import Authority, issue, new_authority
    except ImportError:
        raise CommandError(
            "the package cryptography is missing", then=install_command("security", "cryptography")
        ) from None
    from datetime import UTC, datetime

    folder, now, days = Path(options.directory), datetime.now(UTC), options.days
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "ca.pem", folder / "ca-key.pem"
    if certificate.exists() != key.exists():
        missing = key if certificate.exists() else certificate
        raise CommandError(f"{missing} is missing, but the other file of the authority exists")
    if key.exists():
        authority = Authority(certificate.read_text(), key.read_text())
    else:
        authority = new_authority("Headwater development", now=now, days=10 * days)
        _write(key, authority.key, is_secret=True)
        _write(certificate, authority.certificate)
    try:
        hosts = list(dict.fromkeys([*_HOSTS, *options.host]))
        server = issue(authority, "headwater", hosts, now=now, days=days)
        _write(folder / "server.pem", server.pem, is_secret=True)
        for name in options.client or ["client"]:
            client = issue(authority, name, (), now=now, days=days)
            _write(folder / f"client-{name}.pem", client.pem, is_secret=True)
    except ValueError as error:
        raise CommandError(f"no certificate can be made: {error}") from None
    print(_advice(folder.absolute()), end="")
    return 0


def _write(path: Path, text: str, *, is_secret: bool = False) -> None:
    """Writes a file at once: a node may reload it at any time."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret else 0o644
    )
    with open(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)
    print(f"wrote {path}")


def _advice(folder: Path) -> str:
    return f"""
settings of a node:
  listeners=SSL://:9092
  security.inter.broker.protocol=SSL
  ssl.keystore.type=PEM
  ssl.keystore.location={folder}/server.pem
  ssl.truststore.type=PEM
  ssl.truststore.location={folder}/ca.pem
  ssl.client.auth=required
settings of a client:
  security.protocol=SSL
  ssl.truststore.type=PEM
  ssl.truststore.location={folder}/ca.pem
  ssl.keystore.type=PEM
  ssl.keystore.location={folder}/client-NAME.pem
"""
