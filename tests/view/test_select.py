"""Which samples a page shows."""

from __future__ import annotations

import pytest

from glit.dataset.query import connect
from glit.errors import UserError
from glit.view.select import select


@pytest.fixture
def choose(opened):
    with connect(opened) as connection:
        yield lambda **rest: select(
            opened, connection, **{"most": 200, "seed": 0, "where": "", **rest}
        )


def test_all_of_a_small_dataset(choose, opened):
    found = choose()
    assert found.numbers == tuple(range(len(opened))) and found.matching == len(opened)


def test_the_seed_decides(choose):
    chosen = [choose(most=4, seed=seed).numbers for seed in (0, 0, 1, 2, 3)]
    assert chosen[0] == chosen[1]
    assert len(set(chosen)) > 1
    assert all(len(numbers) == 4 and list(numbers) == sorted(numbers) for numbers in chosen)


def test_a_condition(choose, opened):
    found = choose(where="caption ILIKE '%dog%' -- a remark")
    assert [opened[number].caption.text[:5] for number in found.numbers] == ["A dog"]
    by_view = choose(where="sample_id IN (SELECT sample_id FROM pairs WHERE NOT global_wins)")
    assert 0 < by_view.matching <= len(opened)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nothing > 3", "nothing"),
        ("width < 0", "none of 7 samples"),
        ("true); DROP VIEW samples; SELECT (1", "found SELECT, DROP, SELECT; want one SELECT"),
        ("width > (SELECT count(*) FROM read_text('/etc/hostname'))", "/etc/hostname"),
    ],
)
def test_a_condition_that_is_none(choose, where, said):
    with pytest.raises(UserError, match="--where|want one SELECT") as caught:
        choose(where=where)
    assert said in str(caught.value) and "\n" not in str(caught.value)
