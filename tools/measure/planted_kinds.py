"""Kinds of faults, and how each is planted in an image."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

from PIL import Image, PngImagePlugin

from tools.measure.planted_entries import Entry

_FOREIGN = (
    "Auf dem Bild ist ein großer Hund zu sehen. Er liegt auf einer grünen Wiese. Im Hintergrund "
    "stehen zwei Bäume und ein Haus. Der Himmel ist blau und klar.",
    "Un grand chien est couché sur la pelouse. Derrière lui se trouvent deux arbres. Le ciel est "
    "bleu et il y a des nuages. Une maison est visible à gauche.",
    "Un perro grande está tumbado en el césped. Detrás de él hay dos árboles. El cielo es azul y "
    "hay algunas nubes. A la izquierda se ve una casa.",
    "一只大狗躺在绿色的草地上。 它后面有两棵树。 天空是蓝色的,有几朵云。 左边有一座房子。",
    "Большая собака лежит на зелёной траве. За ней стоят два дерева. Небо голубое с облаками. "
    "Слева виден дом.",
)
"""Captions in German, French, Spanish, Chinese and Russian."""

FORMATS = ("glit", "captions", "coco", "regions", "mdetr", "odvg", "grit", "finehard",
           "visual-genome", "images", "metadata", "tao", "voc", "refcoco", "flickr30k-entities",
           "webdataset", "hf", "yolo", "labelme", "cvat", "label-studio",
           "coco-instances")  # fmt: skip


def _but(*left_out: str, of: tuple[str, ...] = FORMATS) -> tuple[str, ...]:
    return tuple(name for name in of if name not in left_out)


_WITH_TEXTS = ("glit", "captions", "coco", "mdetr", "odvg", "grit", "finehard", "images",
               "metadata", "tao", "flickr30k-entities", "webdataset", "hf")  # fmt: skip
_WITH_BOXES = _but("captions", "coco", "images", "metadata", "webdataset")
_IN_PIXELS = _but("grit", "finehard", "yolo", "label-studio", of=_WITH_BOXES)
_WITH_CORNERS = _but("labelme", of=_WITH_BOXES)
"""Formats in which the order of two corners says something."""
_WITH_SIZES = _but("grit", "finehard", "visual-genome", "yolo", of=_WITH_BOXES)
_WITH_NAMES = _but("images", "voc", "hf")
_ENDS_OF_NAMES = ("tao", "cvat", "label-studio", "coco-instances")
"""Formats of whose paths only the end is used, as they are absolute ones of another machine."""
_SOME = ("glit", "mdetr", "odvg")


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
    words = rng.choice(_FOREIGN)
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


def plant_member_outside(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.name = f"../{entry.name}"


def plant_outer_folder(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.name = rng.choice(["../{}", "/etc/{}"]).format(entry.name)


def plant_control(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.name = f"a\u0007{entry.name}"


def plant_clash(entry: Entry, rng: random.Random, others: list[Entry]) -> None:
    other = others.pop(rng.randrange(len(others)))
    entry.name, other.name = f"Scene{other.row}.png", f"scene{other.row}.png"


def plant_reserved_name(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.name = f"{rng.choice(['con', 'a:b', 'aux'])}.{entry.name}"


def plant_missing(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    entry.picture = None


def plant_text(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    words: list[Any] = ["left", "top", "right", "bottom"]
    entry.boxes[0] = words


def plant_turned(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    """A wider picture that is stored on its side, with its boxes as it is stored."""
    upright = Image.open(io.BytesIO(entry.original)).convert("RGB")
    width, height = entry.width + entry.width // 4, entry.height
    wide = Image.new("RGB", (width, height))
    wide.paste(upright)
    exif = Image.Exif()
    exif[0x0112] = 6
    made = io.BytesIO()
    wide.transpose(Image.Transpose.ROTATE_90).save(made, "PNG", exif=exif)
    entry.picture, entry.width, entry.height = made.getvalue(), height, width
    entry.boxes = [[y0, width - x1, y1, width - x0] for x0, y0, x1, y1 in entry.boxes]


def changed(change: Callable[[bytes], bytes]) -> Plant:
    """A change of the picture's file."""

    def plant(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
        entry.picture = change(entry.original)

    return plant


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]


def _small(data: bytes) -> bytes:
    made = io.BytesIO()
    Image.open(io.BytesIO(data)).resize((16, 16)).save(made, "PNG")
    return made.getvalue()


def _forbidding(data: bytes) -> bytes:
    notes, made = PngImagePlugin.PngInfo(), io.BytesIO()
    notes.add_itxt("XML:com.adobe.xmp", _FORBIDS)
    Image.open(io.BytesIO(data)).save(made, "PNG", pnginfo=notes)
    return made.getvalue()


_FORBIDS = """<x:xmpmeta xmlns:x="adobe:ns:meta/">
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:plus="http://ns.useplus.org/ldf/xmp/1.0/">
<plus:DataMining>http://ns.useplus.org/ldf/vocab/DMI-PROHIBITED</plus:DataMining>
</rdf:Description></rdf:RDF></x:xmpmeta>"""


def half_as_jpeg(data: bytes) -> bytes:
    """A JPEG of half the size."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    made = io.BytesIO()
    image.resize((image.width // 2, image.height // 2)).save(made, "JPEG", quality=85)
    return made.getvalue()


def plant_in_test_set(entry: Entry, rng: random.Random, _: list[Entry]) -> None:
    """Nothing: the test set is made of the chosen images."""


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
    ("box-units", "pixels", plant_pixels, ("grit", "finehard", "yolo")),
    ("box-corners", "other corners", plant_corners, _WITH_CORNERS),
    ("stated-size", "twice the size", plant_size, _WITH_SIZES),
    ("stated-shape", "twice the width", plant_shape, _WITH_SIZES),
    ("stated-turned", "size and boxes before EXIF orientation", plant_turned, _WITH_SIZES),
    ("unreadable", "a box of words", plant_text, ("tao", "coco-instances", "labelme")),
    ("unreadable", "a member's name leads out", plant_member_outside, ("webdataset",)),
    ("picture-missing", "no file", plant_missing,
     _but("glit", "images", "voc", "webdataset", "hf")),
    ("picture-damaged", "half the file", changed(lambda d: d[: len(d) // 2]), FORMATS),
    ("picture-format", "Photoshop", changed(lambda d: b"8BPS\0\1" + d), FORMATS),
    ("picture-small", "16 x 16", changed(_small), FORMATS),
    ("mining-prohibited", "XMP that forbids it", changed(_forbidding), FORMATS),
    ("in-test-set", "the list has it as a JPEG of half the size", plant_in_test_set, FORMATS),
    ("name-unsafe", "../, /etc, control", plant_outer_name,
     _but(*_ENDS_OF_NAMES, "flickr30k-entities", "webdataset", "yolo", of=_WITH_NAMES)),
    ("name-unsafe", "../, /etc", plant_outer_folder, ("flickr30k-entities",)),
    ("name-unsafe", "control", plant_control, ("tao", "label-studio", "coco-instances", "yolo")),
    ("name-unportable", "con, aux, colon", plant_reserved_name, _WITH_NAMES),
    ("name-clash", "names of two images differ in case", plant_clash,
     (*_WITH_NAMES, "images", "voc")),
    ("caption-empty", "no text", plant_empty_caption,
     ("glit", "captions", "coco", "images", "metadata", "flickr30k-entities", "webdataset")),
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


EFFECTS = {
    **dict.fromkeys(("unreadable", "name-unsafe", "name-unportable"), ("picture-missing",)),
    "picture-small": ("stated-size", "box-outside"),
    "span-words": ("token-span",), "caption-language": ("caption-near",),
    "caption-refusal": ("caption-near",),
}  # fmt: skip
"""True consequences of what is planted, which are no other claims."""
