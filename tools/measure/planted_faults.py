"""Plant faults of each kind in files of each format, and count how many of them an audit finds.

python -m tools.measure.planted_faults DATASET [KIND or PLANTED or FORMAT or pairs ...]

DATASET is a clean one with regions, such as of ``glit scenes``. Printed are, by kind and format, at
rates of 1 % and 10 % of the images: recall, the share of planted images that are found; precision,
the share of found images that were planted; and images that are claimed to have other faults. A
second table (``pairs``) has what is said of wrong pairs.
"""

from __future__ import annotations

import copy
import io
import itertools
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from PIL import Image

from glit import open_dataset
from glit.clip.opening import open_embedder
from glit.dataset.reader import Dataset
from glit.inspection.findings import AuditReport, Estimate, Tally
from glit.inspection.inspect import inspect
from glit.inspection.sources import open_source
from glit.runtime.progress import null_progress
from tools.measure.caption_checks import FOREIGN
from tools.measure.console import ended, say
from tools.measure.planted_formats import (
    PICTURES,
    WRITERS,
    Entry,
    entries_of_cached,
    write_dataset,
    write_odvg,
    write_pictures,
)

RATES = (0.01, 0.1)
MATCHER = "mini-matcher"
FORMATS = ("glit", "captions", "coco", "regions", "mdetr", "odvg", "grit", "finehard",
           "visual-genome", "images", "metadata", "tao", "voc")  # fmt: skip
_WITH_TEXTS = ("glit", "captions", "coco", "mdetr", "odvg", "grit", "finehard", "images",
               "metadata", "tao")  # fmt: skip
_WITH_BOXES = ("glit", "regions", "mdetr", "odvg", "grit", "finehard", "visual-genome", "tao",
               "voc")  # fmt: skip
_IN_PIXELS = ("glit", "regions", "mdetr", "odvg", "visual-genome", "tao", "voc")
_WITH_SIZES = ("glit", "regions", "mdetr", "odvg", "voc", "tao")
_WITH_NAMES = tuple(name for name in FORMATS if name not in ("images", "voc"))
_SOME = ("glit", "mdetr", "odvg")
_OF_OTHERS = tuple(name for name in _WITH_NAMES if name != "glit")


Plant = Callable[[Entry, random.Random, list[Entry]], None]
"""Plants a fault in an image; of other images, which are not planted, it may take some away."""


def plant_outside(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    box = rng.choice(entry.boxes)
    box[2] += entry.width


def plant_empty(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    box = rng.choice(entry.boxes)
    box[2] = box[0]


def plant_shares(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    sides = (entry.width, entry.height, entry.width, entry.height)
    entry.boxes = [[e / s for e, s in zip(b, sides, strict=True)] for b in entry.boxes]


def plant_thousandths(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    sides = (entry.width, entry.height, entry.width, entry.height)
    entry.boxes = [[round(1000 * e / s) for e, s in zip(b, sides, strict=True)]
                   for b in entry.boxes]  # fmt: skip


def plant_pixels(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.shares = {"width": 1, "height": 1}


def plant_corners(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.mixed = True


def few(number: int, plant: Plant) -> Plant:
    """The same fault in an image of a few boxes."""

    def plant_few(entry: Entry, rng: random.Random, others: list[Entry]) -> None:
        entry.boxes, entry.phrases = entry.boxes[:number], entry.phrases[:number]
        plant(entry, rng, others)

    return plant_few


def plant_slightly_outside(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    box = rng.choice(entry.boxes)
    box[2], box[3] = entry.width * 1.02, max(box[3], box[1] + 1)


def plant_cut_word(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    rng.choice(entry.phrases)[1] -= 3


def plant_near_by_twentieths(entry: Entry, rng: random.Random, others: list[Entry]) -> None:
    words = others.pop(rng.randrange(len(others))).caption.split()
    words[5::20] = [f"zeppelin{n}" for n, _ in enumerate(words[5::20])]
    entry.caption, entry.phrases = " ".join(words), []


def plant_shifted_span(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    phrase = rng.choice(entry.phrases)
    phrase[0], phrase[1] = max(phrase[0] - 2, 0) or 2, phrase[1] - 2


def plant_span_beyond(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    phrase = rng.choice(entry.phrases)
    phrase[0], phrase[1] = phrase[0] + len(entry.caption), phrase[1] + len(entry.caption)


def plant_other_words(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    rng.choice(entry.phrases)[2] = "a purple zeppelin above the harbour"


def plant_words_alone(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    phrase = rng.choice(entry.phrases)
    phrase[:] = [0, 0, "a purple zeppelin above the harbour"]


def plant_tokens(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.tokens = 1


def plant_size(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.width, entry.height = 2 * entry.width, 2 * entry.height
    entry.boxes = [[2 * edge for edge in box] for box in entry.boxes]


def plant_shape(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.width *= 2


def plant_empty_caption(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.caption, entry.phrases = "", []


def plant_refusal(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    text = f"I'm sorry, but I cannot help with picture {entry.row}."
    entry.caption, entry.phrases = text, []


def plant_loop(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.caption, entry.phrases = f"{entry.caption} {'a red cup and ' * 12}", []


def plant_language(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    words = " ".join(rng.choice(list(FOREIGN.values()))[0])
    entry.caption, entry.phrases = f"{words} {entry.row}.", []


def plant_repeat(entry: Entry, rng: random.Random, others: list[Entry]) -> None:
    entry.caption, entry.phrases = others.pop(rng.randrange(len(others))).caption, []


def plant_near(entry: Entry, rng: random.Random, others: list[Entry]) -> None:
    words = others.pop(rng.randrange(len(others))).caption.split()
    words[len(words) // 2] = "zeppelin"
    entry.caption, entry.phrases = " ".join(words), []


def plant_swap(entry: Entry, rng: random.Random, others: list[Entry]) -> None:
    other = others.pop(rng.randrange(len(others)))
    entry.caption, other.caption = other.caption, entry.caption
    entry.phrases = other.phrases = []


def plant_other_boxes(entry: Entry, rng: random.Random, others: list[Entry]) -> None:
    """Boxes of another image, so that every pair is wrong."""
    other = rng.choice(others)
    entry.boxes = [list(rng.choice(other.boxes)) for _ in entry.boxes]


def plant_outer_name(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.name = rng.choice(["../{}", "/etc/{}", "a\u0007{}"]).format(entry.name)


def plant_reserved_name(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.name = f"{rng.choice(['con', 'a:b', 'aux'])}.{entry.name}"


def plant_missing(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.picture = None


def changed(
    change: Callable[[bytes], bytes],
) -> Callable[[Entry, random.Random, list[Entry]], None]:
    def plant(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
        assert entry.picture is not None
        entry.picture = change(PICTURES[entry.row])

    return plant


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]


def _small(data: bytes) -> bytes:
    made = io.BytesIO()
    Image.open(io.BytesIO(data)).resize((16, 16)).save(made, "PNG")
    return made.getvalue()


PLANTS: tuple[tuple[str, str, Plant, tuple[str, ...]], ...] = (
    ("span-words", "span 2 to the left", plant_shifted_span, ("glit", "odvg", "tao")),
    ("span-words", "span behind the caption", plant_span_beyond,
     ("glit", "mdetr", "odvg", "grit", "tao")),
    ("span-in-word", "span 2 to the left", plant_shifted_span, ("mdetr", "grit")),
    ("text-outside", "other words", plant_other_words, ("glit",)),
    ("text-outside", "other words, no span", plant_words_alone, ("odvg",)),
    ("token-span", "token span 1 to the right", plant_tokens, ("glit",)),
    ("box-outside", "one box to the right", plant_outside, _WITH_BOXES),
    ("box-empty", "one box without width", plant_empty, _WITH_BOXES),
    ("box-units", "shares", plant_shares, _IN_PIXELS),
    ("box-units", "thousandths", plant_thousandths, _IN_PIXELS),
    ("box-units", "pixels", plant_pixels, ("grit", "finehard")),
    ("box-corners", "other corners", plant_corners, _WITH_BOXES),
    ("stated-size", "twice the size", plant_size, _WITH_SIZES),
    ("stated-shape", "twice the width", plant_shape, _WITH_SIZES),
    ("picture-missing", "no file", plant_missing, _OF_OTHERS),
    ("picture-damaged", "half the file", changed(lambda d: d[: len(d) // 2]), FORMATS),
    ("picture-format", "Photoshop", changed(lambda d: b"8BPS\0\1" + d), FORMATS),
    ("picture-small", "16 x 16", changed(_small), FORMATS),
    ("name-unsafe", "../, /etc, control", plant_outer_name, _WITH_NAMES),
    ("name-unportable", "con, aux, colon", plant_reserved_name, _WITH_NAMES),
    ("caption-empty", "no text", plant_empty_caption,
     ("glit", "captions", "coco", "images", "metadata")),
    ("caption-looping", "12 times", plant_loop, _WITH_TEXTS),
    ("caption-refusal", "I cannot", plant_refusal, _WITH_TEXTS),
    ("caption-language", "other language", plant_language, _WITH_TEXTS),
    ("caption-repeated", "another's caption", plant_repeat, _WITH_TEXTS),
    ("caption-near", "another's, one word changed", plant_near, _WITH_TEXTS),
    ("caption-of-another", "captions of two images swapped", plant_swap, _WITH_TEXTS),
    ("caption-near", "another's, every 20th word changed", plant_near_by_twentieths, _SOME),
    ("span-words", "3 letters cut off", plant_cut_word, ("glit", "odvg")),
    ("box-outside", "one box 2 % over the edge", plant_slightly_outside, _SOME),
    ("box-corners", "two boxes an image", few(2, plant_corners), _SOME),
    ("box-corners", "one box an image", few(1, plant_corners), _SOME),
    ("box-units", "shares, one box an image", few(1, plant_shares), _SOME),
    ("box-units", "thousandths, one box an image", few(1, plant_thousandths), _SOME),
    ("picture-damaged", "a byte changed", changed(_flipped), FORMATS[:2]),
)  # fmt: skip
"""Kind, what is planted, how, and in which formats."""


def found_in(
    what: Path, images: Path | None, *, model: bool = False
) -> tuple[dict[str, set[str]], AuditReport]:
    """Names of the images at fault, by kind, and the report."""
    found: dict[str, set[str]] = defaultdict(set)
    source = open_source(str(what), form=None, images=str(images or ""), split=None)
    opened = open_embedder(MATCHER, needed_for="the tool") if model else None
    report = inspect(
        source, null_progress(), images=str(images or ""), model=opened,
        tally=Tally(listener=lambda code, name: found[code].add(name)),
    )  # fmt: skip
    return found, report


def measured(
    dataset: Dataset, form: str, code: str, plant: Plant, rate: float
) -> tuple[int, int, int, int]:
    """Numbers of images: planted, found, rightly found, and with other faults."""
    clean = entries_of_cached(dataset)
    rng = random.Random(f"{form} {code} {rate}")
    entries = copy.deepcopy(clean)
    planted = rate * len(entries) / (2 if code == "caption-of-another" else 1)
    chosen = rng.sample(range(len(entries)), max(1, round(planted)))
    names: set[str] = set()
    others = [each for number, each in enumerate(entries) if number not in chosen]
    left = list(others)
    for number in chosen:
        plant(entries[number], rng, left)
        names.add(entries[number].name)
    if code in ("caption-repeated", "caption-near", "caption-of-another"):
        names |= {each.name for each in others if each not in left}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "images").mkdir()
        if form == "glit":
            what, images = write_dataset(entries, folder, dataset), None
        else:
            for each in entries if form == "visual-genome" else ():
                each.name = f"{each.name.removesuffix('.png')}.jpg"
            write_pictures(entries, folder / "images")
            what = WRITERS[form](entries, folder)
            images = None if form in ("images", "metadata", "voc") else folder / "images"
        found, _ = found_in(what, images, model=code == "caption-of-another")
    names = {_plain(name) for name in names}
    here = {_plain(name) for name in found.pop(code, set())}
    effects = _EFFECTS.get(code, ())
    other = {name for kind, at_fault in found.items() for name in at_fault if kind not in effects}
    return len(names), len(here), len(names & here), len(other)


_EFFECTS = {
    "name-unsafe": ("picture-missing",), "name-unportable": ("picture-missing",),
    "picture-small": ("stated-size", "box-outside"),
    "span-words": ("token-span",), "caption-language": ("caption-near",),
    "caption-refusal": ("caption-near",),
}  # fmt: skip
"""True consequences of what is planted, which are no other claims."""


def _plain(name: str) -> str:
    """A name without folders and suffix, which some formats change."""
    return PurePosixPath(name).stem


def estimated(dataset: Dataset, rate: float) -> Estimate:
    """What an audit says of the pairs, if those of such a share of the images are wrong."""
    rng, entries = random.Random(f"pairs {rate}"), copy.deepcopy(entries_of_cached(dataset))
    others = copy.deepcopy(entries)
    for number in rng.sample(range(len(entries)), round(rate * len(entries))):
        plant_other_boxes(entries[number], rng, others)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "images").mkdir()
        write_pictures(entries, folder / "images")
        _, report = found_in(write_odvg(entries, folder), folder / "images", model=True)
    return report.estimates[0]


def main() -> None:
    """Print the tables."""
    if len(sys.argv) < 2:
        say("usage: python -m tools.measure.planted_faults DATASET [KIND or PLANTED ...]")
        sys.exit(2)
    dataset, wanted = open_dataset(sys.argv[1]), set(sys.argv[2:])
    entries_of_cached(dataset)
    print("| kind | planted | format | rate | planted | found | recall | precision | others |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for code, how, plant, forms in PLANTS:
        for form, rate in itertools.product(forms, RATES):
            if not wanted or {code, how, form} & wanted:
                planted, found, right, other = measured(dataset, form, code, plant, rate)
                precision = f"{right / found:.0%}" if found else "-"
                print(
                    f"| {code} | {how} | {form} | {rate:.0%} | {planted} | {found} | "
                    f"{right / planted:.0%} | {precision} | {other} |", flush=True,
                )  # fmt: skip
    if wanted and "pairs" not in wanted:
        return
    print("| wrong pairs planted | below the middle | interval | pairs |\n|---:|---:|---:|---:|")
    for rate in (0.0, *RATES, 0.3):
        found = estimated(dataset, rate)
        print(
            f"| {rate:.0%} | {found.share:.1%} | {found.at_least:.1%} to {found.at_most:.1%} | "
            f"{found.items} |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    ended(main)
