"""One build at a time per work folder: a lock of the file system, or objects on a store.

On an object store the lock is a row of numbered objects, ``lock/00000001``, ``lock/00000002``, of
which the last counts. Each is made by a write that only one of several writers can win; a store
that lets both win is found out and refused. The holder writes its object anew every half a
minute; a holder that is released says so in it. Who finds a dead one makes the next number, and
the former holder, should it wake up, sees that and stops. Times are compared by the store's own
clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from glit.dataset.manifest import read_manifest
from glit.errors import RunError, StorageError, UserError, first_line
from glit.storage.folder_lock import locked, this_process
from glit.storage.outputs import output_folder
from glit.storage.store import Store, to_json

FOLDER = "lock"
_FILE = ".lock"
BEAT_S = 30.0
DEAD_AFTER_S = 300.0
"""A holder that has not written for so long is dead."""
_LOOK_AGAIN_S = 120.0
"""A holder that has not seen its lock for so long looks before it goes on."""
_RELEASE_S = 30.0
"""Seconds that a build waits at its end until the store knows; one that is silent must not keep it.
"""
_ADVICE = "wait for it, or stop it, which keeps what is done"
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps."""

LockCheck = Callable[[], None]
"""Raises a RunError once another build has taken over."""


def only_one_build(work: Store) -> contextlib.AbstractContextManager[LockCheck]:
    """Hold a work folder, and be able to tell whether it is held still.

    Raises:
        UserError: another build holds it, or it cannot be written to.
    """
    return (_held_locally if work.is_local else _held_remotely)(work)


@contextlib.contextmanager
def _held_locally(work: Store) -> Iterator[LockCheck]:
    """A killed build leaves no lock behind: the system takes it back."""
    folder = Path(work.full(""))
    with locked(folder / _FILE, folder.parent, doing="building", todo=_ADVICE):
        work.sweep()
        yield lambda: None


def remove_held(work: Store) -> None:
    """Remove a work folder that this process holds; the lock last, so that nobody who begins there
    meanwhile loses anything."""
    keep = _FILE if work.is_local else FOLDER
    for name in work.names() - {keep}:
        work.remove(name)
    for name in [_FILE] if work.is_local else [f"{FOLDER}/{each}" for each in _numbers(work)]:
        work.remove(name)
    if work.is_local:
        with contextlib.suppress(OSError):  # a link, or somebody has begun there
            os.rmdir(work.full(""))


def clean(output: str) -> int:
    """Remove ``work/`` of a finished dataset; the bytes freed.

    Raises:
        UserError: the dataset is not finished, so the state is all there is; or a build is at work
            in it, or a file.
    """
    dataset = Store(output_folder(output))
    read_manifest(dataset)
    if not dataset.exists("work"):
        return 0
    work = dataset.below("work")
    freed = sum(max(entry.size, 0) for entry in work.walk())
    with only_one_build(work):
        read_manifest(dataset)  # a build that was to replace it may have removed it meanwhile
        remove_held(work)
    return freed


def _refused(work: Store, number: str) -> UserError:
    holder = _said(work, number).get("holder")
    named = f" ({holder})" if holder else ""
    return UserError(f"{_dataset(work)}: another glit is building here{named}; {_ADVICE}")


@dataclass(slots=True, kw_only=True)
class _Held:
    """A lock that this process holds on a store."""

    work: Store
    name: str
    said: dict[str, Any]
    seen_at: float
    """When it was this build's for sure."""
    lost: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise when another build has taken over.

        Raises:
            RunError: it has.
            StorageError: that cannot be told.
        """
        if not self.lost and _now() - self.seen_at > _LOOK_AGAIN_S:
            self.beat()
        if self.lost:
            raise RunError(
                f"{self.work.root}: another build took over, because this one did not answer for "
                f"{DEAD_AFTER_S:.0f} s; what is done stays done"
            )

    def beat(self) -> None:
        """Say that the holder lives, unless it was taken for dead."""
        asked_at = _now()
        last = max(_numbers(self.work), default="")
        mine = last == self.name and _said(self.work, last).get("token") == self.said["token"]
        self.lost = self.lost or not mine
        if not self.lost:
            self.work.write(f"{FOLDER}/{self.name}", to_json(self.said))
            self.seen_at = asked_at

    def beat_on(self) -> None:
        """Until it is done; then the last sign of life is that it is released."""
        while not self.done.wait(BEAT_S):
            with contextlib.suppress(StorageError):  # the next one may get through
                self.beat()
        self.said["released"] = True
        with contextlib.suppress(StorageError):  # what happened before is the clearer thing to say
            self.beat()


def _now() -> float:
    return time.clock_gettime(_CLOCK)


@contextlib.contextmanager
def _held_remotely(work: Store) -> Iterator[LockCheck]:
    held = take(work)
    beats = threading.Thread(target=held.beat_on, daemon=True, name="lock")
    beats.start()
    try:
        yield held.check
    finally:
        held.done.set()
        beats.join(_RELEASE_S)


def take(work: Store) -> _Held:
    """Take a store's lock.

    Raises:
        UserError: somebody who lives has it, or the store can have none.
        StorageError: the store cannot be written to.
    """
    numbers = sorted(_numbers(work))
    if numbers and _lives(work, numbers[-1]):
        raise _refused(work, numbers[-1])
    number = f"{int(numbers[-1]) + 1 if numbers else 1:08d}"
    said = {"holder": this_process(), "released": False, "token": uuid.uuid4().hex, **_process()}
    asked_at = _now()
    if _create(work, number, said) and _create(work, number, said):
        work.remove(f"{FOLDER}/{number}")
        raise UserError(
            f"{_dataset(work)}: this store overwrites an object where it is asked to make a new "
            "one (it has no conditional writes), so two builds there could not be told apart; "
            "build into a folder, and copy the dataset there"
        )
    if _said(work, number).get("token") != said["token"]:
        raise _refused(work, number)
    for old in numbers:
        work.remove(f"{FOLDER}/{old}")
    return _Held(work=work, name=number, said=said, seen_at=asked_at)


def _create(work: Store, number: str, said: dict[str, Any]) -> bool:
    """Return whether the store says that it made the object. It says no as well where it did, its
    answer was lost, and the client asked again."""
    try:
        work.create(f"{FOLDER}/{number}", to_json(said))
    except FileExistsError:
        return False
    return True


def _numbers(work: Store) -> list[str]:
    return [name for name in work.names(FOLDER) if name.isdigit()]


def _dataset(work: Store) -> str:
    return work.root.rpartition("/")[0]


def _said(work: Store, number: str) -> dict[str, Any]:
    name = f"{FOLDER}/{number}"
    try:
        found = json.loads(work.read(name))
    except (FileNotFoundError, ValueError):
        return {}
    except OSError as error:  # of one object, but without it nothing goes on
        raise StorageError(work.address(name), first_line(error), keys=True) from error
    return found if isinstance(found, dict) else {}


def _lives(work: Store, number: str) -> bool:
    said = _said(work, number)
    if said.get("released"):
        return False
    if said.get("machine") and said.get("machine") == _machine():
        return _process_lives(said)
    try:
        return _silence_s(work, number) < DEAD_AFTER_S
    except FileNotFoundError:  # somebody else took over; who makes the next number will tell
        return False


def _silence_s(work: Store, number: str) -> float:
    """Since the holder wrote, by the store's clock."""
    probe = f"{FOLDER}/now-{uuid.uuid4().hex}"
    work.write(probe, b"")
    try:
        return (work.modified(probe) - work.modified(f"{FOLDER}/{number}")).total_seconds()
    finally:
        work.remove(probe)


def _process() -> dict[str, Any]:
    """This process, for whoever asks on the same machine whether it lives."""
    return {
        "machine": _machine(),
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
    }


def _machine() -> str:
    """Return an identity that processes share that can see each other; empty where it cannot be
    told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _process_lives(said: dict[str, Any]) -> bool:
    try:
        found = psutil.Process(int(said["pid"]))
        alive = found.status() != psutil.STATUS_ZOMBIE
        return alive and found.create_time() == said["started"]
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False
