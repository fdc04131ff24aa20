"""Who is to blame for a worker that is gone."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from glit.pipeline.executors import ray_pool
from glit.pipeline.executors.ray_actor import Slot

DIED, OUT_OF_REACH = ActorDiedError(), ActorUnavailableError("the connection broke", None)


@pytest.mark.parametrize(
    ("error", "alive", "there", "at_work", "starting"),
    [
        # (error, whether it answers after all, nodes now; excused at a unit, excused while starting)
        (DIED, False, {"a", "b"}, False, False),
        (DIED, False, {"b"}, True, True),
        (DIED, False, {"a"}, False, True),  # on which machine it was to start is not known
        (DIED, False, {"a", "b", "c"}, False, False),
        (OUT_OF_REACH, True, {"a", "b"}, True, True),
        (OUT_OF_REACH, False, {"a", "b"}, False, False),
        (OUT_OF_REACH, False, {"b"}, True, True),
        (None, False, {"a", "b"}, False, False),  # ended, as it was silent
    ],
)
def test_what_is_lost_with_its_machine_is_excused(
    monkeypatch, error, alive, there, at_work, starting
) -> None:
    monkeypatch.setattr(ray_pool, "machines", lambda: frozenset(there))
    monkeypatch.setattr(ray_pool, "is_alive", lambda actor: alive)
    slot = Slot(None, node="a", machines=frozenset({"a", "b"}))
    assert ray_pool.Pool._is_excused(slot, error, started=True) == at_work
    assert ray_pool.Pool._is_excused(slot, error, started=False) == starting
