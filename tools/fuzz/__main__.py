"""The command: so many cases of every target, and a table of what became of them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch

from glit.models.clip.random_clip import TINY, write_random_clip
from tools.fuzz.hunt import hunt
from tools.fuzz.targets import targets


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--cases", type=int, default=1000, help="of every target")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--target", action="append", help="one of them; all without it")
    words = parser.parse_args()
    folder = words.output / "files"
    folder.mkdir(parents=True, exist_ok=True)
    output = words.output.absolute()
    scenes, dataset, model = output / "scenes", output / "dataset", output / "model"
    if not (dataset / "manifest.json").is_file():
        _glit("scenes", "-o", scenes, "--num", "6", "--seed", "7")
        corpus = (scenes / "captions.jsonl").read_text(encoding="utf-8").splitlines()
        write_random_clip(model, TINY, seed=0, corpus=corpus, vocabulary=700)
        _glit("build", scenes / "images", "-o", dataset, "-r", "mini", "--executor", "local",
              "--captions", scenes / "captions.jsonl",
              "--set", f"split.tokenizer={model}")  # fmt: skip
    torch.set_num_threads(1)  # a forked process has one thread
    known = targets(folder.absolute(), dataset, scenes / "captions.jsonl", model)
    seeds = range(words.first, words.first + words.cases)
    finds = 0
    for name, target in known.items():
        if words.target and name not in words.target:
            continue
        counts = hunt(name, target, seeds, words.output)
        found = Counter({what: n for what, n in counts.items() if what.startswith("find")})
        finds += sum(found.values())
        line = {"target": name, "cases": len(seeds), "counts": dict(counts.most_common(12))}
        print(json.dumps(line), flush=True)
        with (words.output / "counts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "first": words.first}) + "\n")
    return int(finds > 0)


def _glit(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "glit", *map(str, words)], check=True)


if __name__ == "__main__":
    sys.exit(main())
