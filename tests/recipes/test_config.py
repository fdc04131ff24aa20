"""What enters a fingerprint, and keys that a choice brings into a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from glit.errors import RecipeError
from glit.plain import limited
from glit.recipes.config import (
    Choice,
    as_table,
    build_dataclass,
    identity,
    require_value,
    speed_only,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Soft:
    width: int = 3
    share: float = limited(0.25, least=0, most=1)
    way: Literal["up", "down"] = "up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hard:
    depth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    size: int = 1
    batch_size: int = speed_only(8)
    least: int = speed_only(1, least=1)
    kind: str = "plain"
    options: Any = None
    choice: ClassVar[Choice] = Choice(
        key="kind", options=lambda: {"plain": None, "soft": Soft, "hard": Hard}
    )


def test_what_is_only_speed_never_enters():
    assert identity(Table()) == {"size": 1, "kind": "plain"}
    assert identity(Table(batch_size=64)) == identity(Table())
    assert identity(Table(size=2)) != identity(Table())


def test_options_enter_by_the_same_rules():
    chosen = Table(kind="soft", options=Soft(width=4))
    of_soft = {"width": 4, "share": 0.25, "way": "up"}
    assert identity(chosen) == {"size": 1, "kind": "soft", **of_soft}
    assert as_table(chosen) == {
        "size": 1, "batch_size": 8, "least": 1, "kind": "soft", "width": 4,
        "share": 0.25, "way": "up",
    }  # fmt: skip


def table(**values: Any) -> Table:
    return build_dataclass(Table, values, where="[table]")


def test_keys_of_what_is_chosen_go_into_its_options():
    assert table(kind="soft", width=4, size=2) == Table(kind="soft", size=2, options=Soft(width=4))
    assert table(kind="soft") == Table(kind="soft", options=None)


def test_an_option_written_at_its_default_is_as_if_it_were_not_written():
    assert table(kind="soft", width=3) == table(kind="soft")


def test_a_key_of_another_choice_is_ignored_and_said():
    with pytest.warns(
        UserWarning, match=r"\[table\] depth: ignored, kind = 'soft' does not use it"
    ):
        assert table(kind="soft", depth=2) == Table(kind="soft")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "sofd"}, r"\[table\] kind: found 'sofd'; did you mean 'soft'"),
        ({"kind": "soft", "widht": 4}, r"\[table\]: unknown key 'widht'; did you mean 'width'"),
        ({"kind": "soft", "width": "4"}, r"\[table\] width: found '4' .str., want int"),
        ({"kind": "soft", "share": 1.5}, r"^\[table\] share: found 1.5, want 0 to 1$"),
        ({"kind": "soft", "way": "on"}, r"^\[table\] way: found 'on'; "),
        ({"least": 0}, r"^\[table\] least: found 0, want >= 1$"),
    ],
)
def test_mistakes_in_what_is_chosen(values, message):
    with pytest.raises(RecipeError, match=message):
        table(**values)


def test_need():
    require_value(True, "never said")
    with pytest.raises(RecipeError, match="^size: found 0$"):
        require_value(False, "size: found 0")
