"""The simulation sees bugs: each planted one breaks a promise within a few seeds.

Bugs of a quorum or a cluster cost more histories. Here are those that are found soon; `make
mutants` looks for all of them.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutant_hunt import all_mutants, hunt

# A history costs seconds of a core, which a busy machine gives in minutes.
pytestmark = pytest.mark.timeout(600)

MUTANTS = all_mutants()


@pytest.mark.parametrize(
    "name",
    [name for name, wanted in MUTANTS.items() if wanted.kind in ("node", "log") or wanted.is_quick],
)
def test_a_planted_bug_is_found(name: str) -> None:
    caught = hunt(MUTANTS[name])
    assert caught is not None, f"not caught by {len(MUTANTS[name].seeds)} seeds"
    print(f"{name}: caught by seed {caught.seed}: {caught.what}")
