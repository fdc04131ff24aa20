"""Parts of a build: a stage with a column, a captioner, a proposer, a matcher, a rule; and two
formats."""

import csv
import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from glit.data.records import Box, Drop, Region
from glit.inputs.published.files import annotated
from glit.plain import limited
from glit.rules.protocol import Values
from glit.stages.base import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class LightConfig:
    """Keys of [light]."""

    enabled: bool = False
    """Whether dark images are dropped."""
    least: float = limited(40.0, least=0, most=255)
    """Smallest allowed mean of all pixels, 0 to 255."""


class Light(Stage):
    """Drop images that are too dark; keep the mean of the others as a column."""

    name, version, config = "light", 1, LightConfig
    reads, filters, retryable = ("image",), True, True
    reasons: ClassVar = {"too_dark": "the mean of its pixels is below light.least"}
    columns = dataset_columns = (("light", pa.float32()),)
    about: ClassVar = {"light": "Mean of all pixels, 0 to 255"}
    title, shows = "Light", "least"

    def __init__(self, least):
        self._least = least

    @classmethod
    def open(cls, plan):
        """Called once in every worker."""
        return cls(plan.config(LightConfig).least)

    def process(self, samples, images):
        """One sample or drop for each sample, in order."""
        for sample, pixels in zip(samples, images.each(samples), strict=True):
            if isinstance(pixels, Drop):
                yield pixels
            elif (mean := float(pixels.mean())) < self._least:
                yield Drop(reason="too_dark", message=f"mean {mean:.1f}")
            else:
                yield replace(sample, extra={**sample.extra, "light": round(mean, 2)})


def describe(image):
    """A caption of two sentences; the image is uint8 RGB [height, width, 3]."""
    word = "bright" if image.mean() >= 128 else "dark"
    return f"A {word} picture. There are things in it."


def stripes(image):
    """Three upright stripes of equal width, the best first."""
    height, width = image.shape[:2]
    edges = [width * k / 3 for k in range(4)]
    return [
        Region(box=Box(x0=a, y0=0, x1=b, y1=height), score=1.0, label="", source="stripe")
        for a, b in itertools.pairwise(edges)
    ]


class Colours:
    """A matcher without weights: the mean colour of a region, the colours that a sentence names."""

    def __init__(self, config, model):
        """Constructed once in every worker; the model is None, as it needs none."""

    def embed_regions(self, images, boxes):
        """For each image a unit vector per box: [boxes, 3]."""
        found = []
        for image, own in zip(images, boxes, strict=True):
            edges = np.concatenate([np.floor(own[:, :2]), np.ceil(own[:, 2:])], axis=1).astype(int)
            cut = [image[y0:y1, x0:x1] for x0, y0, x1, y1 in edges]
            found.append(_units([each.mean(axis=(0, 1)) for each in cut]))
        return found

    def embed_sentences(self, sentences):
        """A unit vector per sentence: [sentences, 3]."""
        return _units([[word in each for word in ("red", "green", "blue")] for each in sentences])


def _units(vectors):
    shifted = np.asarray(vectors, dtype=np.float32) + 1e-3
    return shifted / np.linalg.norm(shifted, axis=1, keepdims=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """argmax, without pairs whose region is hardly more similar than the whole image."""

    lead: float = limited(0.02, least=0, most=2)
    """Smallest allowed difference of the two cosines; a key of [pair]."""

    def __call__(self, scores, regions):
        lead = scores.similarity.max(axis=1) - scores.image_similarity
        return Values(value=scores.similarity, null=lead < self.lead)


def write_csv(dataset, folder, report):
    """Write one line per pair: path, box, sentence. Report every row."""
    with (folder / "pairs.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        for row in dataset.rows(images=False):
            for pair in row.pairs:
                box = row.regions[pair.region].box
                lines.writerow([row.source_path, *box.xyxy, row.sentences[pair.sentence].text])
            report(1)


def read_captions_txt(annotations, images, split):
    """``name.jpg<TAB>caption`` in every line; the images beside the file, or in ``images``."""
    for line in annotations.read_text(encoding="utf-8").splitlines():
        name, _, caption = line.partition("\t")
        yield annotated((images or annotations.parent) / name, [caption])
