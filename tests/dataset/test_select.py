"""Which samples a page shows, and which an export writes."""

from __future__ import annotations

import pytest

from glit.dataset.query import connect
from glit.dataset.reader import Dataset
from glit.dataset.select import narrowed, select
from glit.errors import UserError


@pytest.fixture(scope="module")
def opened(built):
    return Dataset(built)


@pytest.fixture
def choose(opened):
    with connect(opened) as connection:
        yield lambda **rest: select(opened, connection, **{"most": 200, "where": "", **rest})


def test_all_of_a_small_dataset(choose, opened):
    found = choose()
    assert found.numbers == tuple(range(len(opened))) and found.matching == len(opened)


def test_the_seed_decides(choose):
    chosen = [choose(most=4, seed=seed).numbers for seed in (0, 0, 1, 2, 3)]
    assert chosen[0] == chosen[1]
    assert len(set(chosen)) > 1
    assert all(len(numbers) == 4 and list(numbers) == sorted(numbers) for numbers in chosen)


def test_a_condition(choose, opened):
    found = choose(where="source_path LIKE '%05.png' -- a remark")
    assert [opened[number].source_path for number in found.numbers] == ["000005.png"]
    by_view = choose(where="sample_id IN (SELECT sample_id FROM pairs WHERE NOT global_wins)")
    assert 0 < by_view.matching <= len(opened)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nothing > 3", "nothing"),
        ("width < 0", "none of 24 samples"),
        ("true); DROP VIEW samples; SELECT (1", "found SELECT, DROP, SELECT; want one SELECT"),
        ("width > (SELECT count(*) FROM read_text('/etc/hostname'))", "table function read_text"),
    ],
)
def test_a_condition_that_is_none(choose, where, said):
    with pytest.raises(UserError, match="--where|want one SELECT") as caught:
        choose(where=where)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_narrowed_dataset_has_the_chosen_rows_and_no_other(opened):
    even = "substr(source_path, 6, 1) IN ('0', '2', '4', '6', '8')"
    found = narrowed(opened, even)
    wanted = [row.sample_id for row in opened if int(row.source_path[5]) % 2 == 0]
    assert 0 < len(wanted) < len(opened)
    assert [row.sample_id for row in found] == wanted
    assert [found[number].sample_id for number in range(len(found))] == wanted
    assert found[-1].encoded() == found[len(wanted) - 1].encoded()
    labels = [row.regions for row in found]
    groups = [found.row_group(n, columns=["regions"]) for n in range(len(found.places))]
    assert sum(map(len, groups)) == len(labels) == sum(each.num_rows for each in found.places)
    assert narrowed(opened, " ") is opened
    with pytest.raises(UserError, match="none of 24 samples"):
        narrowed(opened, "false")
