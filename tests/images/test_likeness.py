"""Which pictures count as the same: not even ones, not those of other colours."""

import io
import itertools

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageDraw

from glit.data.resemblance import References, thumbnail
from glit.images import decode
from glit.images.likeness import look, same_colours
from glit.stages.dedup import find_duplicates


def jpeg(image: Image.Image, quality: int = 90) -> np.ndarray:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return decode(buffer.getvalue())


def photograph(seed: int, tint=(1.0, 1.0, 1.0)) -> Image.Image:
    """Soft blotches."""
    blotches = np.random.default_rng(seed).integers(0, 256, (9, 12), dtype=np.uint8)
    grey = Image.fromarray(blotches).resize((240, 180), Image.Resampling.BICUBIC)
    return Image.fromarray((np.asarray(grey)[:, :, None] * np.array(tint)).astype(np.uint8))


def even_pictures() -> list[np.ndarray]:
    """Nine that share nothing but that there is little in them."""
    size, found = (240, 180), []
    for colour in ("white", "black", "red", (240, 240, 232)):
        found.append(Image.new("RGB", size, colour))
    fall = np.linspace(255, 0, 180)[:, None, None] * np.ones((1, 240, 3))
    found += [Image.fromarray(fall.astype(np.uint8))]
    found += [Image.fromarray((fall * [0.1, 0.4, 0.9]).astype(np.uint8))]
    for place in ((20, 20), (180, 150)):
        found.append(Image.new("RGB", size, "white"))
        ImageDraw.Draw(found[-1]).text(place, "logo", fill="black")
    grain = np.random.default_rng(1).normal(128, 2, (180, 240, 3))
    found.append(Image.fromarray(grain.astype(np.uint8)))
    return [jpeg(each) for each in found]


def duplicates(pictures: list[np.ndarray], bits: int) -> list[tuple[str, str]]:
    seen = [look(each) for each in pictures]
    table = pa.table(
        {
            "sample_id": [f"id{n}" for n in range(len(seen))],
            "source_path": [str(n) for n in range(len(seen))],
            "perceptual_hash": pa.array([each.hash for each in seen], pa.int64()),
            "colours": [each.colours for each in seen],
            "drop": pa.nulls(len(seen), pa.int64()),
        }
    )
    found = find_duplicates([(0, table)], near_bits=bits)
    return [(each.source_path, each.kept_path) for each in found]


@pytest.mark.parametrize("bits", [0, 4, 16])
def test_even_pictures_are_no_duplicates(bits):
    assert duplicates(even_pictures(), bits) == []


def test_even_pictures_are_not_in_a_list_of_others():
    thumbnails = np.stack([thumbnail(each) for each in even_pictures()])
    for number in range(len(thumbnails)):
        others = np.delete(thumbnails, number, axis=0)
        assert References(others).resembled(thumbnails[number][None]) == [None]


def test_a_photograph_encoded_again_is_a_duplicate_and_one_of_other_colours_is_not():
    first, again = photograph(0), jpeg(photograph(0), 60)
    smaller = jpeg(photograph(0).resize((120, 90)), 80)
    red = photograph(0, (1, 0.1, 0.1))
    pictures = [np.asarray(first), again, smaller, np.asarray(photograph(1)), np.asarray(red)]
    assert duplicates(pictures, 4) == [("1", "0"), ("2", "0")]
    assert look(pictures[0]).hash == look(pictures[4]).hash is not None
    for one, other in itertools.combinations(pictures[:3], 2):
        assert same_colours(look(one).colours, look(other).colours)


def test_the_mirrored_picture_has_another_hash():
    first = look(np.asarray(photograph(2))).hash
    mirrored = look(np.asarray(photograph(2))[:, ::-1]).hash
    assert first is not None and mirrored is not None
    assert ((first ^ mirrored) & (1 << 64) - 1).bit_count() > 16
