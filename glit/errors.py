"""The errors that glit raises on purpose, in one tree; each message is one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from glit.installation import install_command
from glit.masking import masked


def closest(found: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the closest or all known names.

    >>> closest("agrmax", ["argmax", "lism"])
    "did you mean 'argmax'?"
    >>> closest("best", ["argmax", "lism"])
    'known: argmax, lism'
    """
    known = list(known)
    close = difflib.get_close_matches(found, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def first_line(error: BaseException) -> str:
    """Another library's error message on one line; the error's type if it has no message.

    >>> first_line(ValueError("no such column\\nat line 3"))
    'no such column'
    >>> first_line(KeyError())
    'KeyError'
    >>> first_line(OSError(5, "Input/output error", "a.parquet"))
    'Input/output error'
    """
    said = masked(str((isinstance(error, OSError) and error.strerror) or error)).strip()
    return said.splitlines()[0] if said else type(error).__name__


MOST_SAID = 300
"""Characters of a value that a message repeats."""


def cut(text: str, most: int = MOST_SAID) -> str:
    """A value's text for a message, shortened in the middle.

    >>> cut("a" * 9, 8)
    'aaaa … a'
    """
    text = masked(text)  # of a key that is cut, half would stay
    if len(text) <= most:
        return text
    tail = most // 6
    return f"{text[: most - tail - 3]} … {text[len(text) - tail :]}"


class GlitError(Exception):
    """Base of every error glit raises on purpose.

    The message is one line: where, what was found, what was wanted, what to do next. Only where
    several things have to be fetched, each has a line below it. Keys and passwords are hidden.
    ``exit_code`` is what the command line returns: 2 for a user's mistake, 1 for a failed run.
    """

    exit_code = 1

    def __init__(self, *said: Any) -> None:
        super().__init__(*(masked(each) if isinstance(each, str) else each for each in said))


class UserError(GlitError):
    """The command, the recipe or the input is wrong, and the user can fix it."""

    exit_code = 2


class RecipeError(UserError):
    """A recipe holds an unknown key, a value of the wrong type, or an impossible value."""


class InputError(UserError):
    """An input folder, list or caption file cannot be used as it is."""


class DamagedTableError(UserError):
    """A table of a build is damaged or missing; glit can rebuild it.

    >>> str(DamagedTableError("out/work", "ingest-1/0.parquet", "it has no digest"))
    'out/work/ingest-1/0.parquet: damaged (it has no digest); glit build rebuilds it'
    """

    def __init__(self, root: str, table: str, reason: str) -> None:
        super().__init__(f"{root}/{table}: damaged ({reason}); glit build rebuilds it")
        self.root = root
        self.table = table
        self.reason = reason

    def __reduce__(self) -> tuple:
        return DamagedTableError, (self.root, self.table, self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPackage:
    """An optional package that is not installed."""

    package: str
    extra: str
    """The extra that installs it."""
    needed_for: str


class MissingExtraError(UserError):
    """Optional packages are not installed. The message has one command that installs all of them.

    >>> ray = MissingPackage(package="ray", extra="ray", needed_for="--executor ray")
    >>> str(MissingExtraError(ray)).partition(" with: ")[0]
    '--executor ray needs the package ray; install it'
    >>> torch = MissingPackage(package="torch", extra="models", needed_for="token spans")
    >>> str(MissingExtraError(torch, ray)).partition(" with: ")[0]
    'token spans needs the package torch, --executor ray needs ray; install all'
    """

    def __init__(self, *missing: MissingPackage) -> None:
        first, *others = missing
        needs = [f"{first.needed_for} needs the package {first.package}"]
        needs += [f"{each.needed_for} needs {each.package}" for each in others]
        command = install_command(*(each.extra for each in missing))
        super().__init__(f"{', '.join(needs)}; install {'all' if others else 'it'} with: {command}")
        self.missing = missing
        self.command = command

    def __reduce__(self) -> tuple:
        return MissingExtraError, self.missing


class MissingPluginError(UserError):
    """A part of another package that something was made with is not loaded here."""


class WeightsError(UserError):
    """Model weights are missing, incomplete, or not what the manifest pins."""


class MissingModelError(WeightsError):
    """A model is not on this machine.

    >>> str(MissingModelError("m", reason="not in the cache", fetch="hf download org/m"))
    "model 'm': not in the cache; get it on a connected machine with: hf download org/m"
    """

    def __init__(self, name: str, *, reason: str, fetch: str = "") -> None:
        get = f"; get it on a connected machine with: {fetch}" if fetch else ""
        super().__init__(f"model {name!r}: {reason}{get}")
        self.name = name
        self.reason = reason
        self.fetch = fetch
        """The command that gets it; empty where no such model is known."""

    def __reduce__(self) -> tuple:
        return _missing_model, (self.name, self.reason, self.fetch)


def _missing_model(name: str, reason: str, fetch: str) -> MissingModelError:
    return MissingModelError(name, reason=reason, fetch=fetch)


class DatasetError(GlitError):
    """A dataset on disk breaks a promise of the data format."""


class StoppedError(GlitError):
    """Ctrl-C, --max-hours, --max-tokens (130) or SIGTERM (143) stopped the run, which can be
    resumed."""

    exit_code = 130


class RunError(GlitError):
    """A run could not finish; it can be resumed."""


class StorageError(RunError):
    """An object store is unreachable or refuses the key.

    >>> str(StorageError("s3://photos", "The provided token has expired.", keys=True))
    's3://photos: The provided token has expired; renew or change the keys, then run it again'
    """

    def __init__(self, where: str, reason: str, *, keys: bool = False) -> None:
        todo = "renew or change the keys, then" if keys else "when that is fixed,"
        super().__init__(f"{where}: {reason.rstrip('. ')}; {todo} run it again")
        self.where = where
        self.reason = reason
        self.keys = keys
        """True if the key is at fault."""

    def __reduce__(self) -> tuple:
        return _storage_error, (self.where, self.reason, self.keys)


def _storage_error(where: str, reason: str, keys: bool) -> StorageError:
    return StorageError(where, reason, keys=keys)
