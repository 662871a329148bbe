"""Delegation tokens as the controller decides them, and how they log in."""

from __future__ import annotations

from base64 import b64encode

import pytest

from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Replay
from headwater.metadata.features import LEVEL_TOKENS
from headwater.metadata.snapshot import image_records
from headwater.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from headwater.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headwater.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from headwater.protocol.records.metadata_security import DelegationTokenRecord
from headwater.security.principal import Principal
from headwater.security.sasl.scram import ScramClient
from headwater.security.sasl.scram_server import ScramServer
from headwater.security.sasl.server import Authenticated, Challenge
from headwater.security.tokens import TokenSecrets, token_hmac
from tests.support.controllers import Bench

KEY = "a secret of the cluster"
HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_800_000_000_000
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))


@pytest.fixture
def bench() -> Bench:
    return Bench(settings={"delegation.token.secret.key": KEY})


def create(
    bench: Bench,
    who: Principal = ALICE,
    *,
    owner: str = "",
    renewers: tuple[Principal, ...] = (),
    lifetime_ms: int = -1,
    now_ms: int = NOW,
) -> DelegationTokenRecord:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else "",
        owner_principal_name=owner,
        renewers=[
            CreatableRenewers(principal_type=each.type, principal_name=each.name)
            for each in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )
    return bench.do(bench.machine.decide_create_token(request, who, now_ms=now_ms))


def renew(
    bench: Bench,
    token: DelegationTokenRecord,
    who: Principal = ALICE,
    *,
    period_ms: int = -1,
    now_ms: int = NOW,
) -> int:
    request = RenewDelegationTokenRequest(
        hmac=token_hmac(token.token_id, KEY), renew_period_ms=period_ms
    )
    return bench.do(bench.machine.decide_renew_token(request, who, now_ms=now_ms))


def expire(
    bench: Bench,
    token: DelegationTokenRecord,
    who: Principal = ALICE,
    *,
    period_ms: int = -1,
    now_ms: int = NOW,
) -> int:
    request = ExpireDelegationTokenRequest(
        hmac=token_hmac(token.token_id, KEY), expiry_time_period_ms=period_ms
    )
    return bench.do(bench.machine.decide_expire_token(request, who, now_ms=now_ms))


def test_a_token_lives_for_a_day_and_is_renewed_for_at_most_a_week(bench: Bench) -> None:
    token = create(bench)
    assert (token.owner, token.requester) == ("User:alice", "User:alice")
    assert token.issue_timestamp == NOW
    assert token.expiration_timestamp == NOW + DAY
    assert token.max_timestamp == NOW + 7 * DAY
    later = NOW + 20 * HOUR
    assert renew(bench, token, now_ms=later) == later + DAY
    assert renew(bench, token, now_ms=later, period_ms=HOUR) == later + HOUR
    assert renew(bench, token, now_ms=later, period_ms=2 * DAY) == later + DAY
    for day in range(1, 7):
        renew(bench, token, now_ms=later + day * DAY - HOUR)
    assert bench.machine.image.tokens[token.token_id].expiration_timestamp == NOW + 7 * DAY


def test_a_lifetime_may_be_shorter_than_the_clusters_and_not_longer(bench: Bench) -> None:
    short = create(bench, lifetime_ms=HOUR)
    assert (short.expiration_timestamp, short.max_timestamp) == (NOW + HOUR, NOW + HOUR)
    assert create(bench, lifetime_ms=30 * DAY).max_timestamp == NOW + 7 * DAY


def test_owner_requester_and_renewers_renew_and_expire_and_nobody_else(bench: Bench) -> None:
    token = create(bench, ALICE, owner="bob", renewers=(CAROL,))
    assert (token.owner, token.requester) == ("User:bob", "User:alice")
    for who in (ALICE, BOB, CAROL):
        assert renew(bench, token, who) == NOW + DAY
        assert expire(bench, token, who, period_ms=HOUR) == NOW + HOUR
    for who in (Principal("User", "dave"), Principal("Group", "alice")):
        for refused in (renew, expire):
            with pytest.raises(ApiError) as refusal:
                refused(bench, token, who)
            assert refusal.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_a_token_ends_at_once_or_after_a_time(bench: Bench) -> None:
    token, other = create(bench), create(bench)
    assert expire(bench, token, period_ms=30 * DAY) == NOW + 7 * DAY
    assert expire(bench, token) == NOW
    assert list(bench.machine.image.tokens) == [other.token_id]
    with pytest.raises(ApiError) as refusal:
        renew(bench, token)
    assert refusal.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert renew(bench, other) == NOW + DAY


def test_an_expired_token_is_not_renewed_and_the_sweep_removes_it(bench: Bench) -> None:
    token = create(bench)
    kept = create(bench, now_ms=NOW + HOUR)
    late = NOW + DAY + 1
    for refused in (renew, expire):
        with pytest.raises(ApiError) as refusal:
            refused(bench, token, period_ms=HOUR, now_ms=late)
        assert refusal.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED
    bench.do(bench.machine.decide_remove_expired_tokens(now_ms=late - 1))
    assert len(bench.machine.image.tokens) == 2
    bench.do(bench.machine.decide_remove_expired_tokens(now_ms=late))
    assert list(bench.machine.image.tokens) == [kept.token_id]


def test_another_controller_with_the_same_key_knows_the_tokens(bench: Bench) -> None:
    token = create(bench)
    renew(bench, token)
    successor = Bench(settings={"delegation.token.secret.key": KEY})
    replay = Replay()
    replay.apply(list(image_records(bench.machine.image)))
    successor.machine.load(replay, {}, bench.offset)
    assert renew(successor, token, now_ms=NOW + HOUR) == NOW + HOUR + DAY


@pytest.mark.parametrize(
    ("bench", "code"),
    [
        (Bench(), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (
            Bench(settings={"delegation.token.secret.key": ""}),
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        ),
        (
            Bench(settings={"delegation.token.secret.key": KEY}, metadata_version=LEVEL_TOKENS - 1),
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_there_are_no_tokens_without_the_key_or_at_an_old_level(
    bench: Bench, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refusal:
        create(bench)
    assert refusal.value.code is code


def test_only_users_renew(bench: Bench) -> None:
    with pytest.raises(ApiError) as refusal:
        create(bench, renewers=(BOB, Principal("Group", "bob")))
    assert refusal.value.code is ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not bench.machine.image.tokens


# Login


def login(secrets: TokenSecrets, token: DelegationTokenRecord, password: str) -> object:
    client = ScramClient("SCRAM-SHA-256", token.token_id, password, "ours", is_token=True)

    def find(user: str, is_token: bool) -> object:
        return secrets.find(token, "SCRAM-SHA-256", NOW) if is_token else None

    server = ScramServer("SCRAM-SHA-256", find, "theirs", b"decoy")  # type: ignore[arg-type]
    challenge = server.answer(client.first())
    assert isinstance(challenge, Challenge)
    final = client.answer(challenge.token)
    assert final is not None
    return server.answer(final)


def test_a_token_logs_in_as_its_owner_with_its_hmac_as_password(bench: Bench) -> None:
    token = create(bench, ALICE, owner="bob")
    secrets = TokenSecrets(KEY)
    password = b64encode(token_hmac(token.token_id, KEY)).decode()
    done = login(secrets, token, password)
    assert isinstance(done, Authenticated)
    assert done.principal == Principal("User", "bob", is_token=True)
    assert done.expires_at_ms == NOW + DAY
    assert secrets.find(token, "SCRAM-SHA-256", NOW + DAY + 1) is None
    assert secrets.find(None, "SCRAM-SHA-256", NOW) is None
    assert secrets.find(token, "SCRAM-SHA-512", NOW) is not None
