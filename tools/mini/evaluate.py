"""How good the mini models are on test scenes, through glit's own backends; the same functions
serve report and tests."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glit.data.geometry import area_ratio_mask, iou
from glit.models.backends.captioners.transformers_generate import TransformersCaptioner
from glit.models.backends.grounders.zero_shot import ZERO_SHOT
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.backends.proposers.yolos import YolosDetector
from glit.models.backends.protocols import CaptionerConfig
from glit.models.weights import resolve
from glit.scenes import Rendering, Scene, SceneCaption, draw_scene, render, write_caption
from glit.scenes.vocabulary import BACKGROUNDS, LIGHTS, SHAPES
from glit.stages.ground import GroundConfig
from glit.stages.propose import ProposeConfig
from glit.stages.score import ScoreConfig
from glit.text.phrases import object_spans
from tools.mini.parsed_captions import is_well_formed, objects_told, true_of
from tools.mini.phrases import attributes_of, draw_phrases, objects_of, read_phrase

if TYPE_CHECKING:
    from segment_anything import SamAutomaticMaskGenerator
    from segment_anything.modeling import Sam

    from glit.models.backends.sam.model import MaskThresholds

TEST_SEED = 2_000_000
VALIDATION_SEED = 1_000_000
MINI = Path("glit/mini")
IOU = 0.5

_BATCH = 64
_MAX_AREA = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A scene, painted and told."""

    scene: Scene
    rendering: Rendering
    caption: SceneCaption

    def boxes(self) -> np.ndarray:
        """float64 ``[K, 4]``: the objects' boxes."""
        return np.array(self.rendering.boxes_xyxy, dtype=float)

    def whole(self) -> np.ndarray:
        """float64 ``[4]``: the box of the whole picture."""
        height, width = self.rendering.object_ids.shape
        return np.array([0, 0, width, height], dtype=float)


def samples(num: int, *, seed: int = TEST_SEED, level: str = "normal") -> list[Sample]:
    """The first ``num`` scenes of a seed."""
    scenes = [draw_scene(seed, index, level=level) for index in range(num)]
    return [
        Sample(scene=scene, rendering=render(scene), caption=write_caption(scene))
        for scene in scenes
    ]


def num_matched(found: np.ndarray, true: np.ndarray) -> int:
    """How many true boxes get a found box of IoU 0.5 or more, each found box used once."""
    if not len(found) or not len(true):
        return 0
    overlaps = iou(found, true)
    matched = 0
    while overlaps.max() >= IOU:
        i, j = np.unravel_index(overlaps.argmax(), overlaps.shape)
        overlaps[i], overlaps[:, j] = -1.0, -1.0
        matched += 1
    return matched


def recall_and_precision(found: Iterable[tuple[np.ndarray, Sample]]) -> tuple[float, float]:
    """Of the boxes ``[N, 4]`` found in pictures, at IoU 0.5."""
    counts = [(num_matched(b, s.boxes()), len(s.scene.objects), len(b)) for b, s in found]
    matched, true, called = np.sum(counts, axis=0).tolist()
    return matched / true, matched / max(1, called)


def evaluate_matcher(folder: Path, tests: list[Sample]) -> dict[str, float]:
    """Sentence to true box, shape among crops of one colour, short and long retrieval."""
    matcher = ClipMatcher(ScoreConfig(device="cpu"), resolve(str(folder)))
    regions = [
        matcher.embed_regions([s.rendering.pixels], [np.vstack([s.boxes(), s.whole()])])[0]
        for s in tests
    ]
    owners = [(n, k) for n, s in enumerate(tests) for k in range(len(s.scene.objects))]
    right: list[bool] = []
    sentence_of: dict[tuple[int, int], str] = {}
    for n, sample in enumerate(tests):
        spoken = [s for s in sample.caption.sentences if s.kind == "object"]
        similarity = matcher.embed_sentences([s.text for s in spoken]) @ regions[n][:-1].T
        for sentence, row in zip(spoken, similarity, strict=True):
            assert sentence.object is not None
            sentence_of[n, sentence.object] = sentence.text
            right.append(int(row.argmax()) == sentence.object)
    pictures = np.stack([each[-1] for each in regions])

    def recall_at_1(texts: list[str]) -> float:
        found = (matcher.embed_sentences(texts) @ pictures.T).argmax(axis=1)
        return float((found == np.arange(len(tests))).mean())

    crops = np.concatenate([each[:-1] for each in regions])
    read = matcher.embed_sentences([sentence_of[owner] for owner in owners])
    return {
        "sentence_to_box": float(np.mean(right)),
        "shape_in_colour": _shape_in_colour(tests, owners, crops, read),
        "short_r1": recall_at_1([s.caption.short for s in tests]),
        "long_r1": recall_at_1([s.caption.text for s in tests]),
    }


def _shape_in_colour(
    tests: list[Sample], owners: list[tuple[int, int]], seen: np.ndarray, read: np.ndarray
) -> float:
    """Share of object sentences that pick their crop out of ten of its colour, one a shape."""
    items = [tests[n].scene.objects[k] for n, k in owners]
    rng = np.random.default_rng(0)
    groups: dict[tuple[str, str], list[int]] = {}
    for row, item in enumerate(items):
        groups.setdefault((item.colour, item.shape), []).append(row)
    right = 0
    for row, item in enumerate(items):
        others = [groups.get((item.colour, shape), []) for shape in SHAPES if shape != item.shape]
        rivals = [int(rng.choice(rows)) for rows in others if rows]
        right += int((seen[[row, *rivals]] @ read[row]).argmax() == 0)
    return right / len(items)


def evaluate_proposer(folder: Path, tests: list[Sample]) -> dict[str, float]:
    """Recall and precision of boxes at IoU 0.5, score 0.5 and more."""
    config = ProposeConfig(device="cpu", score_threshold=0.5)
    found = YolosDetector(config, resolve(str(folder))).detect([s.rendering.pixels for s in tests])
    boxes = [np.array([r.box.xyxy for r in regions]).reshape(-1, 4) for regions in found]
    recall, precision = recall_and_precision(zip(boxes, tests, strict=True))
    return {"recall": recall, "precision": precision}


def evaluate_grounder(folder: Path, tests: list[Sample]) -> dict[str, float]:
    """Recall and precision of a phrase's boxes at IoU 0.5: of captions' own phrases, and of drawn
    ones, in which plurals and phrases that are true of nothing are many."""
    config = GroundConfig(model=str(folder), device="cpu", threshold=0.4, nms_iou=0.25)
    grounder = ZERO_SHOT.make(config, resolve(str(folder)))
    own = [
        [read_phrase(sentence.text[slice(*span)]) for sentence in sample.caption.sentences
         for span in object_spans(sentence.text)]
        for sample in tests
    ]  # fmt: skip
    attributes = [attributes_of(sample.scene) for sample in tests]
    words = random.Random(0)
    drawn = [draw_phrases(attributes, np.array([n, n, (n + 1) % len(tests)]), 8, words)
             for n in range(len(tests))]  # fmt: skip
    figures: dict[str, float] = {}
    for name, phrases in (("phrase", own), ("drawn", drawn)):
        counts = np.zeros(3)
        pixels = [sample.rendering.pixels for sample in tests]
        found = grounder.find(pixels, [[each.text for each in some] for some in phrases])
        for number, (sample, some, boxes) in enumerate(zip(tests, phrases, found, strict=True)):
            true_KP = objects_of(some, attributes[number])
            for column, each in enumerate(boxes):
                wanted = sample.boxes()[true_KP[:, column]]
                counts += num_matched(each.boxes, wanted), len(wanted), len(each.boxes)
        matched, true, called = counts.tolist()
        figures[f"{name}_recall"] = matched / true
        figures[f"{name}_precision"] = matched / max(1, called)
    return figures


def evaluate_segmenter(
    folder: Path, tests: list[Sample], *, num_automatic: int
) -> dict[str, float]:
    """Mean IoU of the mask from one random point, and boxes of automatic masks."""
    from segment_anything import SamPredictor

    from glit.bench.lism_flism.published_sam import published_sam
    from glit.models.backends.sam.model import load_sam

    sam = load_sam(resolve(str(folder)))
    model = published_sam(sam)
    predictor = SamPredictor(model)
    rng = np.random.default_rng(0)
    overlaps: list[float] = []
    for sample in tests:
        predictor.set_image(sample.rendering.pixels)
        for k in range(len(sample.scene.objects)):
            wanted = sample.rendering.object_ids == k + 1
            y, x = rng.choice(np.argwhere(wanted))
            masks, _, _ = predictor.predict(
                np.array([[x, y]]), np.array([1]), multimask_output=False
            )
            overlaps.append(float((masks[0] & wanted).sum() / (masks[0] | wanted).sum()))
    generator = mask_generator(model, sam.thresholds)
    recall, precision = recall_and_precision(
        (inner_boxes(automatic_boxes(generator.generate(s.rendering.pixels)), s), s)
        for s in tests[:num_automatic]
    )
    point_iou = float(np.mean(overlaps))
    return {"point_iou": point_iou, "auto_recall": recall, "auto_precision": precision}


def mask_generator(model: Sam, thresholds: MaskThresholds) -> SamAutomaticMaskGenerator:
    """Segment-anything's own generator under a model's own thresholds."""
    from segment_anything import SamAutomaticMaskGenerator

    return SamAutomaticMaskGenerator(model, **asdict(thresholds))


def inner_boxes(boxes: np.ndarray, sample: Sample) -> np.ndarray:
    """Boxes of at most 0.8 of the picture, as the LISM recipe keeps: the background is dropped."""
    _, _, width, height = sample.whole().astype(int)
    fits = area_ratio_mask(boxes, width=width, height=height, min_ratio=0, max_ratio=_MAX_AREA)
    return boxes[fits]


def automatic_boxes(records: list[dict]) -> np.ndarray:
    """Boxes of automatic masks as ``[N, 4]`` x0, y0, x1, y1; the generator gives x, y, w, h."""
    boxes = np.array([record["bbox"] for record in records], dtype=float).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2] + 1
    return boxes


def caption_scenes(folder: Path, tests: list[Sample]) -> list[str]:
    """Greedy captions by transformers ``generate``."""
    config = CaptionerConfig(device="cpu", max_tokens=160)
    captioner = TransformersCaptioner(config, resolve(str(folder)), "?")
    captions: list[str] = []
    for start in range(0, len(tests), _BATCH):
        images = [s.rendering.pixels for s in tests[start : start + _BATCH]]
        said = captioner.caption(images, seeds=[0] * len(images), temperature=0.0)
        captions += [each.text for each in said]
    return captions


def score_captions(captions: list[str], tests: list[Sample]) -> dict[str, float]:
    """Shares of true sentences, well-formed captions and true backgrounds."""
    told = [(t, s.scene) for c, s in zip(captions, tests, strict=True) for t in objects_told(c)]
    count = max(1, len(told))
    objects = sum(len(s.scene.objects) for s in tests)
    backgrounds = [
        f"The background is {BACKGROUNDS[s.scene.background]}." in c
        for c, s in zip(captions, tests, strict=True)
    ]
    lights = [
        f"lit by {LIGHTS[s.scene.light][0]}." in c for c, s in zip(captions, tests, strict=True)
    ]
    return {
        "true_sentences": sum(true_of(t, scene) for t, scene in told) / count,
        "told_per_object": len(told) / objects,
        "well_formed": float(np.mean([is_well_formed(c) for c in captions])),
        "background": float(np.mean(backgrounds)),
        "light": float(np.mean(lights)),
    }


def evaluate_captioner(folder: Path, tests: list[Sample]) -> dict[str, float]:
    """:func:`score_captions` of the captioner's own captions."""
    return score_captions(caption_scenes(folder, tests), tests)
