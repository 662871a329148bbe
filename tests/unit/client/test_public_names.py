"""What a user can import, and that it costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headwater
from headwater import blocking


@pytest.mark.parametrize("name", headwater.__all__)
def test_every_name_of_the_package_is_there(name: str) -> None:
    assert getattr(headwater, name) is not None
    assert name in dir(headwater)


@pytest.mark.parametrize("name", blocking.__all__)
def test_the_blocking_face_has_its_own_clients_and_the_same_of_all_else(name: str) -> None:
    is_client = name in ("Admin", "Consumer", "Producer")
    assert (getattr(blocking, name) is getattr(headwater, name)) is not is_client


def test_importing_the_package_loads_no_client() -> None:
    program = (
        "import sys, headwater, headwater.blocking\n"
        "print([n for n in sys.modules if n.startswith(('headwater.client', 'asyncio'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
