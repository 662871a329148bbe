"""SCRAM credentials as the controller decides them. Codes are those of Kafka 4.3.1."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode
from headwater.metadata.features import LEVEL_SCRAM
from headwater.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater.security.sasl.scram import ScramClient, salted_password
from tests.support.controllers import Bench

SHA_256, SHA_512 = 1, 2
Change = ScramCredentialUpsertion | ScramCredentialDeletion


def setting(
    name: str = "alice",
    *,
    mechanism: int = SHA_256,
    iterations: int = 4096,
    salted: bytes = b"p" * 32,
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted,
    )


def deleting(name: str = "alice", mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(bench: Bench, *changes: Change) -> dict[str, int]:
    """The error code of each user."""
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    results = bench.do(bench.machine.decide_alter_scram_credentials(request))
    assert all(bool(each.error_code) == bool(each.error_message) for each in results)
    return {each.user: each.error_code for each in results}


def test_a_user_has_a_credential_for_each_mechanism_until_they_are_deleted() -> None:
    bench = Bench()
    assert alter(bench, setting()) == {"alice": 0}
    assert alter(bench, setting(mechanism=SHA_512, iterations=8192)) == {"alice": 0}
    scram = bench.machine.image.scram
    assert {key: record.iterations for key, record in scram.items()} == {
        ("alice", SHA_256): 4096,
        ("alice", SHA_512): 8192,
    }
    assert alter(bench, deleting()) == {"alice": 0}
    assert list(scram) == [("alice", SHA_512)]


def test_the_keys_of_a_record_prove_the_password_and_do_not_contain_it() -> None:
    bench = Bench()
    salted = salted_password("SCRAM-SHA-256", "wonderland", b"salt", 4096)
    alter(bench, setting(salted=salted))
    kept = bench.machine.image.scram["alice", SHA_256]
    assert salted not in (kept.salt, kept.stored_key, kept.server_key)
    client = ScramClient("SCRAM-SHA-256", "alice", "wonderland", "ours")
    client.first()
    final = client.answer(b"r=oursandtheirs,s=c2FsdA==,i=4096")
    assert final is not None
    import base64
    import hashlib
    import hmac

    said, _, proof = final.rpartition(b",p=")
    everything = b"n=alice,r=ours,r=oursandtheirs,s=c2FsdA==,i=4096," + said
    signature = hmac.digest(kept.stored_key, everything, "sha256")
    client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key
    server = base64.b64encode(hmac.digest(kept.server_key, everything, "sha256"))
    assert client.answer(b"v=" + server) is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (setting(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting(iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (setting(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (setting(mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deleting("nobody"), ErrorCode.RESOURCE_NOT_FOUND),
        (deleting("nobody", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deleting(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_and_the_others_are_made(
    change: Change, code: ErrorCode
) -> None:
    bench = Bench()
    assert alter(bench, change, setting("bob")) == {change.name: code, "bob": 0}
    assert list(bench.machine.image.scram) == [("bob", SHA_256)]


@pytest.mark.parametrize(
    "changes",
    [
        (setting(), setting(mechanism=SHA_512)),
        (deleting(), setting()),
        (setting(), setting(), setting()),
        (deleting(), deleting(mechanism=SHA_512)),
    ],
)
def test_a_user_who_is_named_twice_stays_as_before(changes: tuple[Change, ...]) -> None:
    bench = Bench()
    alter(bench, setting(iterations=5000))
    alter(bench, setting(mechanism=SHA_512, iterations=5000))
    assert alter(bench, *changes) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert {each.iterations for each in bench.machine.image.scram.values()} == {5000}
    assert len(bench.machine.image.scram) == 2


def test_the_first_error_of_a_user_stands() -> None:
    assert alter(Bench(), setting(iterations=1), setting()) == {
        "alice": ErrorCode.UNACCEPTABLE_CREDENTIAL
    }


def test_a_cluster_of_an_older_level_has_no_credentials() -> None:
    old = Bench(metadata_version=LEVEL_SCRAM - 1)
    assert alter(old, setting()) == {"alice": ErrorCode.UNSUPPORTED_VERSION}
    assert alter(Bench(metadata_version=LEVEL_SCRAM), setting()) == {"alice": 0}
