"""A second world with known truth: stamps of Tux Paint on photographs, with long captions.

    apt-get download tuxpaint-stamps-default && dpkg-deb -x tuxpaint-stamps-default_*.deb stamps
    python -m tools.stamps stamps OUT --num 2000

writes ``OUT/train``, ``OUT/validation`` and ``OUT/test``: images with their boxes beside them and
``captions.jsonl``, as ``glit build -r annotated`` reads them. ``OUT/test/object.json`` and
``position.json`` ask for the true one of two sentences in the layout of SugarCrepe.

The stamps (GPL-2) have a line each, which becomes a sentence with a place. Training, validation and
test have other pictures and other photographs behind them, and the same stamps.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from glit.sample import HERE, photographs

SIDE_PX = 192
_MOST_WORDS = 9
_PARTS = {"train": 1.0, "validation": 0.1, "test": 0.5}
"""Pictures of a part, as a share of ``--num``."""
_BEHIND = {"train": slice(0, 8), "validation": slice(8, 9), "test": slice(9, 12)}
"""Which of the twelve photographs of ``glit sample`` lie behind the stamps."""
PLACES = (
    "top left corner", "top centre", "top right corner",
    "middle left", "very middle", "middle right",
    "bottom left corner", "bottom centre", "bottom right corner",
)  # fmt: skip
_SENTENCES = (
    "There is {thing} in the {place}.",
    "In the {place} one sees {thing}.",
    "The {place} of the picture shows {thing}.",
    "{Thing} is in the {place}.",
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A cut-out and what it shows."""

    path: Path
    thing: str
    """With its article: ``a red apple``."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A stamp in a picture."""

    stamp: Stamp
    place: int
    box_xyxy: tuple[int, int, int, int]
    sentence: str


def read_stamps(folder: Path) -> list[Stamp]:
    """The stamps whose line names one thing, such as "A red apple."; sorted."""
    found = []
    for image in sorted(folder.rglob("*.png")):
        line = image.with_suffix(".txt")
        text = line.read_text(encoding="utf-8").splitlines()[0] if line.is_file() else ""
        thing = re.fullmatch(r"(An?|Some|The) ([\w ,'’-]+)\.", text.strip())
        if thing and len(text.split()) <= _MOST_WORDS:
            found.append(Stamp(image, f"{thing[1].lower()} {thing[2]}"))
    return found


def told(stamp: Stamp, place: int, template: str) -> str:
    """The sentence that tells of a stamp at a place."""
    thing = stamp.thing
    return template.format(thing=thing, Thing=thing[0].upper() + thing[1:], place=PLACES[place])


def compose(
    stamps: list[Stamp], photograph: Image.Image, rng: random.Random
) -> tuple[Image.Image, list[Placed]]:
    """A square piece of a photograph with three to six stamps, each in a ninth of its own."""
    side = rng.randint(min(photograph.size) // 2, min(photograph.size))
    x, y = (rng.randint(0, length - side) for length in photograph.size)
    picture = photograph.crop((x, y, x + side, y + side)).resize((SIDE_PX, SIDE_PX))
    picture = ImageOps.mirror(picture) if rng.random() < 0.5 else picture
    placed = []
    chosen = rng.sample(stamps, rng.randint(3, min(6, len(stamps))))
    for stamp, place in zip(chosen, rng.sample(range(9), len(chosen)), strict=True):
        with Image.open(stamp.path) as file:
            cut = file.convert("RGBA")
        cut = cut.crop(cut.getchannel("A").getbbox())
        cut.thumbnail((size := rng.randint(SIDE_PX // 5, SIDE_PX // 3), size))
        row, column = divmod(place, 3)
        left, top = (
            min(max(round((at + 0.5) * SIDE_PX / 3 - length / 2 + rng.randint(-8, 8)), 0),
                SIDE_PX - length)
            for at, length in ((column, cut.width), (row, cut.height))
        )  # fmt: skip
        picture.paste(cut, (left, top), cut)
        box = (left, top, left + cut.width, top + cut.height)
        placed.append(Placed(stamp, place, box, told(stamp, place, rng.choice(_SENTENCES))))
    return picture, placed


def write_part(
    out: Path, stamps: list[Stamp], behind: list[Path], *, num: int, seed: str
) -> list[list[Placed]]:
    """Write pictures, boxes and captions; what is in each."""
    images = out / "images"
    images.mkdir(parents=True, exist_ok=True)
    opened = [Image.open(path).convert("RGB") for path in behind]
    captions, placed = [], []
    for number in range(num):
        rng = random.Random(f"{seed} {number}")
        picture, things = compose(stamps, rng.choice(opened), rng)
        name = f"{number:05d}.jpg"
        picture.save(images / name, quality=92)
        regions = [
            {"box": each.box_xyxy, "label": each.stamp.thing, "source": "truth",
             "sentences": [each.sentence]}
            for each in things
        ]  # fmt: skip
        (images / name).with_suffix(".json").write_text(json.dumps({"regions": regions}))
        caption = " ".join(each.sentence for each in things)
        captions.append(json.dumps({"path": name, "caption": caption}, ensure_ascii=False))
        placed.append(things)
    (out / "captions.jsonl").write_text("\n".join(captions) + "\n", encoding="utf-8")
    return placed


def questions(pictures: list[list[Placed]], stamps: list[Stamp]) -> dict[str, dict[str, Any]]:
    """By kind: a true sentence of every picture, and one with another stamp or another place."""
    found: dict[str, dict[str, Any]] = {"object": {}, "position": {}}
    for number, things in enumerate(pictures):
        rng = random.Random(f"questions {number}")
        one = rng.choice(things)
        shown = {each.stamp.thing for each in things}
        other = rng.choice([stamp for stamp in stamps if stamp.thing not in shown])
        free = sorted(set(range(9)) - {each.place for each in things})
        false = {
            "object": told(other, one.place, _SENTENCES[0]),
            "position": told(one.stamp, rng.choice(free), _SENTENCES[0]),
        }
        for kind, sentence in false.items():
            found[kind][str(number)] = {
                "filename": f"{number:05d}.jpg",
                "caption": told(one.stamp, one.place, _SENTENCES[0]),
                "negative_caption": sentence,
            }
    return found


def main() -> None:
    """Write all three parts."""
    parser = argparse.ArgumentParser(prog="python -m tools.stamps")
    parser.add_argument("stamps", type=Path, help="the folder of the unpacked package")
    parser.add_argument("output", type=Path)
    parser.add_argument("--num", type=int, default=2000, help="training pictures")
    parser.add_argument("--things", type=int, default=0, help="use so many stamps; 0 is all")
    words = parser.parse_args()
    stamps = read_stamps(words.stamps)
    stamps = stamps[:: len(stamps) // words.things] if words.things else stamps
    if not stamps:
        parser.error(f"{words.stamps}: holds no stamp (NAME.png with NAME.txt)")
    paths = [HERE / "photographs" / each["path"] for each in photographs()]
    for part, share in _PARTS.items():
        out = words.output / part
        pictures = write_part(
            out, stamps, paths[_BEHIND[part]], num=int(share * words.num), seed=part
        )
        print(f"{out}: {len(pictures)} pictures of {len(stamps)} stamps")
        if part == "test":
            for kind, asked in questions(pictures, stamps).items():
                (out / f"{kind}.json").write_text(json.dumps(asked, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
