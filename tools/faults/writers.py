"""Commands that write a dataset or another format, killed at many moments; pairs of them at once.

``python -m tools.faults.writers OUT``: each command is run undisturbed, then killed at moments
spread over the time that it took, and run again. What it reads has to stay as it is, what it
leaves has to be no dataset, and the second run has to end with the bytes of the first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.errors import GlitError
from glit.review.corrections.journal import Journal, State
from glit.scenes.write import write_scenes
from tools.faults.run import digests
from tools.forked import ended, start, warm_up

_AT_MOST_S = 120.0
_OF_A_TIME = ("metrics", "environment", "/glit/", ".lance/")
"""In the names of files that tell of their own time, or are called by chance."""
LOCAL = "--executor local --quiet"
WRITERS: dict[str, str] = {
    "select": "select a -o OUT --sample 5",
    "select in parts": "select a -o OUT --split train=0.5,val=0.5",
    "merge": "merge a b -o OUT",
    "pair": "pair a -o OUT -r lism",
    "apply": "pairs apply a --corrections corrections.jsonl -o OUT",
    "export to hf": "export a --to hf -o OUT",
    "export to webdataset": "export a --to webdataset -o OUT",
    "export to coco": "export a --to coco -o OUT",
    "export to goal": "export a --to goal -o OUT",
    "export to lance": "export a --to lance -o OUT",
    "export annotations": "export a --to annotations -o OUT",
    "attach": "attach c --images changed -o OUT",
    "import": "import annotations.json --format coco --images s/images -o OUT.jsonl",
    "references": "overlap s/images -o OUT.parquet",
    "view": "view a -o OUT.html",
    "train": "train a -o OUT -r mini --set train.epochs=1 --set train.batch_size=4",
}
PAIRS: tuple[tuple[str, ...], ...] = (
    (f"build s/images -o OUT -r mini --captions s/captions.jsonl {LOCAL}",) * 2,
    (f"add OUT {LOCAL}", f"add OUT {LOCAL}"),
    (f"add OUT {LOCAL}", f"retry OUT {LOCAL}"),
    (f"add OUT {LOCAL}", "select a -o OUT --sample 5"),
    (f"add OUT {LOCAL}", "merge OUT b -o NEW"),
    (f"retry OUT {LOCAL}", "export OUT --to coco -o NEW"),
    ("select a -o NEW --sample 5", "select a -o NEW --sample 3"),
    ("select a -o NEW --sample 5", "merge a b -o NEW"),
    ("merge a b -o NEW", "merge b a -o NEW"),
    ("export a --to hf -o NEW", "export a --to coco -o NEW"),
    ("export a --to coco -o NEW", "export a --to coco -o NEW"),
    ("pair a -o NEW -r lism", "pair a -o NEW -r flism"),
    ("train a -o NEW -r mini --set train.epochs=1 --set train.batch_size=4",) * 2,
)


def prepare(folder: Path) -> None:
    """Two datasets, corrections of one of them, annotations, and one without its pictures."""
    write_scenes(folder / "s", num=10, seed=7)
    write_scenes(folder / "t", num=4, seed=99)
    for scenes, name in (("s", "a"), ("t", "b")):
        words = (
            f"build {scenes}/images -o {name} -r mini --captions {scenes}/captions.jsonl {LOCAL}"
        )
        assert run(folder, words)[0] == 0, (folder / "said").read_text()
    assert run(folder, "export a --to annotations -o c")[0] == 0, (folder / "said").read_text()
    (folder / "changed").mkdir()
    for number, row in enumerate(Dataset(str(folder / "a"))):
        Image.fromarray(row.pixels()).save(folder / "changed" / f"{number}.jpg", quality=88)
    lines = (folder / "s" / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    images = [{"id": n, "file_name": Path(e["path"]).name} for n, e in enumerate(entries)]
    said = [{"id": n, "image_id": n, "caption": e["caption"]} for n, e in enumerate(entries)]
    (folder / "annotations.json").write_text(json.dumps({"images": images, "annotations": said}))
    row = next(iter(Dataset(str(folder / "a")).rows(images=False)))
    sha256 = hashlib.sha256((folder / "a" / "manifest.json").read_bytes()).hexdigest()
    journal = Journal(folder / "corrections.jsonl", sha256, by="nobody")
    moved = State(pairs={row.pairs[0].sentence: None}, right=True)
    journal.add(row.sample_id, moved, "pair", seen=journal.of(row.sample_id)[1])


def run(folder: Path, line: str, *, kill_after_s: float = 0.0) -> tuple[int | None, float]:
    """Exit code of a command line, below zero if it was killed, and its seconds."""
    began = time.monotonic()
    child = start(line.split(), folder, folder / "said")
    if kill_after_s:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    return ended(child, _AT_MOST_S), time.monotonic() - began


def clear(folder: Path) -> None:
    for path in [*folder.glob("OUT*"), *folder.glob("NEW*"), *folder.glob(".*OUT*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def made(folder: Path, name: str = "OUT") -> dict[str, str]:
    """What was written: a run's model, a file, or a folder."""
    found = {f"{each.name}/{k}": v for each in sorted(folder.glob(f"{name}*")) if each.is_dir()
             for k, v in digests(each).items()}  # fmt: skip
    files = digests(folder)
    found |= {k: v for k, v in files.items() if "/" not in k and k.startswith(name)}
    return {k: v for k, v in found.items() if not any(part in k for part in _OF_A_TIME)}


def killed(folder: Path, line: str, moments: int) -> list[str]:
    """What was wrong when a command was killed at these many moments."""
    clear(folder)
    code, took_s = run(folder, line)
    if code != 0:
        return [f"undisturbed: {(folder / 'said').read_text()[-300:]}"]
    whole, sources, wrong = made(folder), (digests(folder / "a"), digests(folder / "b")), []
    for moment in range(moments):
        clear(folder)
        at_s = took_s * (moment + 1) / moments
        run(folder, line, kill_after_s=at_s)
        left = made(folder)
        if (folder / "OUT" / "manifest.json").exists() and left != whole:
            wrong.append(f"{at_s:.2f} s: a dataset that is not whole")
        code, _ = run(folder, line)
        said = (folder / "said").read_text(encoding="utf-8")
        if "go on with --resume" in said:
            code, _ = run(folder, f"{line} --resume")
            said = (folder / "said").read_text(encoding="utf-8")
        if code != 0 and left == whole and "exists" in said:  # it had ended before
            continue
        if code != 0 or "Traceback" in said:
            wrong.append(f"{at_s:.2f} s: the second run says {said[-300:]}")
        elif made(folder) != whole:
            other = {k for k in whole.keys() | left.keys() if made(folder).get(k) != whole.get(k)}
            wrong.append(f"{at_s:.2f} s: other bytes in {sorted(other)[:5]}")
        if (digests(folder / "a"), digests(folder / "b")) != sources:
            wrong.append(f"{at_s:.2f} s: its source was changed")
            break
    return wrong


def at_once(folder: Path, pair: Sequence[str], after_s: float) -> list[str]:
    """What was wrong when two commands ran at once: a traceback, no winner, or a broken dataset."""
    first, second = pair
    clear(folder)
    if "OUT" in first and not first.startswith("build"):
        shutil.copytree(folder / "a", folder / "OUT")
    tables = [folder / "said-1", folder / "said-2"]
    children = [start(first.split(), folder, tables[0])]
    time.sleep(after_s)
    children.append(start(second.split(), folder, tables[1]))
    codes = [ended(child, _AT_MOST_S) for child in children]
    said = [table.read_text(encoding="utf-8") for table in tables]
    wrong = [f"a traceback: {each[-600:]}" for each in said if "Traceback" in each]
    if 0 not in codes:
        wrong.append(f"none ended well: {codes} {said}")
    for name in ("OUT", "NEW"):
        if (folder / name / "manifest.json").exists():
            wrong += _unsound(folder / name)
    return wrong


def _unsound(dataset: Path) -> list[str]:
    try:
        return [f"{dataset.name}: {breach}" for breach in verify(str(dataset))]
    except GlitError as error:
        return [f"{dataset.name}: {error}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--only", action="append", help="one of the commands, or 'pairs'")
    words = parser.parse_args()
    warm_up()
    folder = words.output.absolute()
    if not folder.exists():
        folder.mkdir(parents=True)
        prepare(folder)
    wrong, wanted = 0, words.only or [*WRITERS, "pairs"]
    looks: list[tuple[str, Callable[[], list[str]]]] = [
        (name, lambda line=line: killed(folder, line, words.moments))
        for name, line in WRITERS.items()
        if name in wanted
    ]
    if "pairs" in wanted:
        looks += [
            (f"{' | '.join(pair)} | {after_s}", lambda p=pair, s=after_s: at_once(folder, p, s))
            for pair in PAIRS
            for after_s in (0.0, 0.3, 1.0)
        ]
    for name, look in looks:
        found = look()
        wrong += len(found)
        print(json.dumps({"what": name, "wrong": len(found), "first": found[:3]}), flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main()))
