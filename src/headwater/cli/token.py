"""`headwater token`: delegation tokens, with which programs log in for a user (KIP-48)."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from base64 import b64decode, b64encode
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headwater.cli.arguments import read_duration
from headwater.cli.connection import add_cluster_options, open_admin
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import add_output_option, print_fields, print_table
from headwater.cli.parser import add_actions
from headwater.cli.user import read_secret

if TYPE_CHECKING:
    from headwater.client.admin import DelegationToken

_EXAMPLES = """\
examples:
  headwater token create --lifetime 12h                    for yourself
  headwater token create --owner User:etl --renewer User:scheduler
  headwater token list
  headwater token renew --hmac-file etl.hmac               keeps it alive for another day
  headwater token expire --hmac-file etl.hmac              ends it now
  headwater token expire --hmac-file etl.hmac --in 1h

A token logs in by SCRAM, with its id as username, its hmac as password and tokenauth=true. The
cluster has tokens if delegation.token.secret.key is set on every node. You have to be logged in to
ask for one, and not by a token.
"""


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("create", "create a token", _define_create),
            ("list", "list the tokens that you may see", _define_list),
            ("renew", "extend the life of a token", _define_renew),
            ("expire", "end a token, now or later", _define_expire),
        ),
        examples=_EXAMPLES,
    )


def _define_create(action: ArgumentParser) -> None:
    action.add_argument(
        "--owner",
        type=_principal,
        metavar="PRINCIPAL",
        help="owner of the token (default: yourself)",
    )
    action.add_argument(
        "--renewer",
        type=_principal,
        action="append",
        default=[],
        metavar="PRINCIPAL",
        help="another user that may renew it, such as User:alice; may be repeated",
    )
    action.add_argument(
        "--lifetime",
        type=read_duration,
        metavar="DURATION",
        help="maximum lifetime, such as 12h (default: delegation.token.max.lifetime.ms)",
    )
    _finish(action)
    action.set_defaults(run=_create)


def _define_list(action: ArgumentParser) -> None:
    action.add_argument(
        "--owner",
        type=_principal,
        action="append",
        default=[],
        metavar="PRINCIPAL",
        help="only tokens of this owner or renewer; may be repeated",
    )
    _finish(action)
    action.set_defaults(run=_list)


def _define_renew(action: ArgumentParser) -> None:
    _define_hmac(action)
    action.add_argument(
        "--period",
        type=read_duration,
        metavar="DURATION",
        help="new lifetime from now on, such as 12h (default: delegation.token.expiry.time.ms)",
    )
    _finish(action)
    action.set_defaults(run=_renew)


def _define_expire(action: ArgumentParser) -> None:
    _define_hmac(action)
    action.add_argument(
        "--in",
        dest="period",
        type=read_duration,
        metavar="DURATION",
        help="when, such as 1h (default: now)",
    )
    _finish(action)
    action.set_defaults(run=_expire)


def _define_hmac(action: ArgumentParser) -> None:
    action.add_argument(
        "--hmac-file",
        metavar="FILE",
        help="read the token's hmac from the first line of a file, - for standard input (default: "
        "ask for it on a terminal, else standard input)",
    )


def _finish(action: ArgumentParser) -> None:
    add_cluster_options(action)
    add_output_option(action)


def _principal(text: str) -> str:
    from argparse import ArgumentTypeError

    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ArgumentTypeError(f"{text}: expected a principal such as User:alice")
    return text


def _create(options: Namespace) -> int:
    with open_admin(options) as admin:
        token = admin.create_token(
            owner=options.owner, renewers=options.renewer, lifetime_ms=_ms(options.lifetime)
        )
    fields: dict[str, object] = dict(zip(_COLUMNS, _row(token, options.output), strict=True))
    fields["hmac"] = b64encode(token.hmac).decode()
    print_fields(fields, output=options.output)
    return 0


_COLUMNS = ("id", "owner", "requester", "renewers", "issued", "expires", "expires at most")


def _row(token: DelegationToken, output: str) -> tuple[object, ...]:
    times = (token.issued_ms, token.expires_ms, token.expires_at_most_ms)
    if output == "json":
        return (token.id, token.owner, token.requester, list(token.renewers), *times)
    shown = (_time(each) for each in times)
    return (token.id, token.owner, token.requester, ",".join(token.renewers) or None, *shown)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")


def _list(options: Namespace) -> int:
    with open_admin(options) as admin:
        tokens = admin.describe_tokens(options.owner or None)
    if not tokens and options.output == "text":
        print("no tokens")
        return 0
    # Without their secrets, which only `create` shows.
    rows = [_row(each, options.output) for each in tokens]
    print_table(_COLUMNS, rows, output=options.output)
    return 0


def _renew(options: Namespace) -> int:
    hmac = _hmac(options)
    with open_admin(options) as admin:
        expires_ms = admin.renew_token(hmac, period_ms=_ms(options.period))
    return _print_expiry(expires_ms, options)


def _expire(options: Namespace) -> int:
    hmac = _hmac(options)
    with open_admin(options) as admin:
        expires_ms = admin.expire_token(hmac, period_ms=_ms(options.period))
    return _print_expiry(expires_ms, options)


def _print_expiry(expires_ms: int, options: Namespace) -> int:
    expires = expires_ms if options.output == "json" else _time(expires_ms)
    print_fields({"expires": expires}, output=options.output)
    return 0


def _hmac(options: Namespace) -> bytes:
    text = read_secret(options.hmac_file, "hmac of the token: ", what="hmac")
    try:
        return b64decode(text, validate=True)
    except ValueError:  # also of text that is not ASCII
        raise CommandError("the hmac is not in base64, as `create` shows it", code=USAGE) from None


def _ms(duration: timedelta | None) -> int | None:
    return None if duration is None else int(duration.total_seconds() * 1000)
