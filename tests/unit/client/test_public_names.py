"""The names that users import, which cost nothing until they are used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import headwater
from headwater import blocking
from headwater.testing import EmbeddedBroker


@pytest.mark.parametrize("name", headwater.__all__)
def test_every_name_of_the_package_is_there(name: str) -> None:
    assert getattr(headwater, name) is not None
    assert name in dir(headwater)


@pytest.mark.parametrize("name", blocking.__all__)
def test_the_blocking_face_has_its_own_clients_and_the_same_of_all_else(name: str) -> None:
    own = ("Admin", "Consumer", "Producer", "TransactionBatch", "exactly_once")
    assert (getattr(blocking, name) is getattr(headwater, name)) is not (name in own)


def test_importing_the_package_loads_no_client() -> None:
    program = (
        "import sys, headwater, headwater.blocking\n"
        "print([n for n in sys.modules if n.startswith(('headwater.client', 'asyncio'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# A class of the Rust core says what it is in `_core.pyi`.
SAID_ELSEWHERE = {"ConsumedRecord"}


@pytest.mark.parametrize("name", sorted(set(headwater.__all__) - SAID_ELSEWHERE))
def test_every_public_class_and_function_says_what_it_is(name: str) -> None:
    thing = getattr(headwater, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert thing.__doc__
        assert not thing.__doc__.startswith(f"{name}(")  # what dataclass writes by itself


@pytest.mark.parametrize(
    "client",
    [
        headwater.Producer,
        headwater.Consumer,
        headwater.Admin,
        blocking.Producer,
        blocking.Consumer,
        blocking.Admin,
        EmbeddedBroker,
    ],
    ids=lambda client: f"{client.__module__}.{client.__name__}",
)
def test_every_call_of_a_client_says_what_it_does(client: type) -> None:
    silent = [
        name
        for name, member in inspect.getmembers(client)
        if not name.startswith("_")
        and (callable(member) or isinstance(member, property))
        and not inspect.getdoc(member)
    ]
    assert silent == []


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer"])
def test_a_blocking_client_has_the_calls_of_the_other_and_no_more(name: str) -> None:
    asynchronous = public(getattr(headwater, name)) | {"config"}  # which some set when made
    assert public(getattr(blocking, name)) == asynchronous


def test_a_producer_shows_only_what_is_for_its_users() -> None:
    assert public(headwater.Producer) == {
        "abort_transaction",
        "begin_transaction",
        "client_instance_id",
        "close",
        "commit_transaction",
        "complete_transaction",
        "config",
        "flush",
        "metrics",
        "partitions_for",
        "prepare_transaction",
        "prepared_transaction",
        "register_metric",
        "send",
        "send_offsets",
        "start",
        "submit",
        "submit_arrow",
        "transaction",
        "unregister_metric",
    }
