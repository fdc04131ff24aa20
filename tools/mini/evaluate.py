"""How good the mini models are on test scenes; the same functions serve report and tests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from glit.scenes import Rendering, Scene, SceneCaption, draw_scene, render, write_caption
from glit.scenes.told import is_well_formed, objects_told, true_of
from glit.scenes.vocabulary import (
    BACKGROUNDS,
    LIGHTS,
    SHAPES,
)

if TYPE_CHECKING:
    from segment_anything import SamAutomaticMaskGenerator
    from segment_anything.modeling import Sam

    from glit.backends.sam.model import MaskThresholds

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

    @property
    def image(self) -> Image.Image:
        """The picture."""
        return Image.fromarray(self.rendering.pixels)

    def boxes(self) -> np.ndarray:
        """float64 ``[K, 4]``: the objects' boxes."""
        return np.array(self.rendering.boxes_xyxy, dtype=float)


def samples(num: int, *, seed: int = TEST_SEED, level: str = "normal") -> list[Sample]:
    """The first ``num`` scenes of a seed."""
    scenes = [draw_scene(seed, index, level=level) for index in range(num)]
    return [
        Sample(scene=scene, rendering=render(scene), caption=write_caption(scene))
        for scene in scenes
    ]


def iou_matrix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU of every box of ``a [N, 4]`` with every box of ``b [M, 4]``: ``[N, M]``.

    >>> iou_matrix(np.array([[0, 0, 2, 2]]), np.array([[0, 0, 1, 2], [4, 4, 5, 5]])).tolist()
    [[0.5, 0.0]]
    """
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    area_a = (a[:, 2:] - a[:, :2]).prod(axis=1)
    area_b = (b[:, 2:] - b[:, :2]).prod(axis=1)
    return shared / (area_a[:, None] + area_b[None] - shared)


def num_matched(found: np.ndarray, true: np.ndarray) -> int:
    """How many true boxes get a found box of IoU 0.5 or more, each found box used once."""
    if not len(found) or not len(true):
        return 0
    overlaps = iou_matrix(found, true)
    matched = 0
    while overlaps.max() >= IOU:
        i, j = np.unravel_index(overlaps.argmax(), overlaps.shape)
        overlaps[i], overlaps[:, j] = -1.0, -1.0
        matched += 1
    return matched


class Matcher:
    """The mini matcher behind its own processor."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer, CLIPImageProcessor, CLIPModel

        self.model: Any = CLIPModel.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.images = CLIPImageProcessor.from_pretrained(folder)

    @torch.inference_mode()
    def see(self, images: list[Image.Image]) -> np.ndarray:
        """Embeddings ``[N, E]`` of pictures."""
        parts = []
        for i in range(0, len(images), _BATCH):
            pixels = self.images(images[i : i + _BATCH], return_tensors="pt")
            output = self.model.vision_model(**pixels)
            parts.append(self.model.visual_projection(output.pooler_output))
        return torch.nn.functional.normalize(torch.cat(parts), dim=-1).numpy()

    @torch.inference_mode()
    def read(self, texts: list[str]) -> np.ndarray:
        """Embeddings ``[N, E]`` of texts, cut at the context of 77 tokens."""
        parts = []
        for i in range(0, len(texts), _BATCH):
            tokens = self.tokenizer(
                texts[i : i + _BATCH],
                padding=True,
                truncation=True,
                max_length=self.model.config.text_config.max_position_embeddings,
                return_tensors="pt",
            )
            output = self.model.text_model(**tokens)
            parts.append(self.model.text_projection(output.pooler_output))
        return torch.nn.functional.normalize(torch.cat(parts), dim=-1).numpy()


def evaluate_matcher(folder: Path, tests: list[Sample]) -> dict[str, float]:
    """Sentence to true box, shape among crops of one colour, short and long retrieval."""
    matcher = Matcher(folder)
    crops = [s.image.crop(box) for s in tests for box in s.rendering.boxes_xyxy]
    owners = [(n, k) for n, s in enumerate(tests) for k in range(len(s.scene.objects))]
    seen = matcher.see(crops)
    right = total = 0
    sentence_of: dict[tuple[int, int], str] = {}
    for n, sample in enumerate(tests):
        rows = [i for i, (owner, _) in enumerate(owners) if owner == n]
        spoken = [s for s in sample.caption.sentences if s.kind == "object"]
        similarity = matcher.read([s.text for s in spoken]) @ seen[rows].T
        for sentence, row in zip(spoken, similarity, strict=True):
            assert sentence.object is not None
            sentence_of[n, sentence.object] = sentence.text
            right += int(row.argmax() == sentence.object)
            total += 1
    pictures = matcher.see([s.image for s in tests])
    short = matcher.read([s.caption.short for s in tests])
    long = matcher.read([s.caption.text for s in tests])
    return {
        "sentence_to_box": right / total,
        "shape_in_colour": _shape_in_colour(matcher, tests, owners, seen, sentence_of),
        "short_r1": float(((short @ pictures.T).argmax(1) == np.arange(len(tests))).mean()),
        "long_r1": float(((long @ pictures.T).argmax(1) == np.arange(len(tests))).mean()),
    }


def _shape_in_colour(
    matcher: Matcher,
    tests: list[Sample],
    owners: list[tuple[int, int]],
    seen: np.ndarray,
    sentence_of: dict[tuple[int, int], str],
) -> float:
    """Share of object sentences that pick their crop out of ten of its colour, one a shape."""
    items = [tests[n].scene.objects[k] for n, k in owners]
    rng = np.random.default_rng(0)
    groups: dict[tuple[str, str], list[int]] = {}
    for row, item in enumerate(items):
        groups.setdefault((item.colour, item.shape), []).append(row)
    right = total = 0
    read = matcher.read([sentence_of[owner] for owner in owners])
    for row, item in enumerate(items):
        others = [groups.get((item.colour, shape), []) for shape in SHAPES if shape != item.shape]
        rivals = [int(rng.choice(rows)) for rows in others if rows]
        candidates = [row, *rivals]
        right += int((seen[candidates] @ read[row]).argmax() == 0)
        total += 1
    return right / total


def evaluate_proposer(folder: Path, tests: list[Sample]) -> dict[str, float]:
    """Recall and precision of boxes at IoU 0.5, score 0.5 and more."""
    from transformers import YolosForObjectDetection, YolosImageProcessor

    model = YolosForObjectDetection.from_pretrained(folder, dtype=torch.float32).eval()
    processor = YolosImageProcessor.from_pretrained(folder)
    matched = found = true = 0
    for i in range(0, len(tests), _BATCH):
        part = tests[i : i + _BATCH]
        inputs = processor(images=[s.image for s in part], return_tensors="pt")
        with torch.inference_mode():
            output = model(pixel_values=inputs["pixel_values"])
        sizes = [s.rendering.pixels.shape[:2] for s in part]
        results = processor.post_process_object_detection(output, 0.5, target_sizes=sizes)
        for sample, result in zip(part, results, strict=True):
            boxes = result["boxes"].numpy()
            matched += num_matched(boxes, sample.boxes())
            found += len(boxes)
            true += len(sample.scene.objects)
    return {"recall": matched / true, "precision": matched / max(1, found)}


def evaluate_segmenter(
    folder: Path, tests: list[Sample], *, num_automatic: int
) -> dict[str, float]:
    """Mean IoU of the mask from one random point, and boxes of automatic masks."""
    from segment_anything import SamPredictor

    from glit.backends.sam.model import load_sam

    model, _, thresholds = load_sam(folder)
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
    generator = mask_generator(model, thresholds)
    matched = found = true = 0
    for sample in tests[:num_automatic]:
        boxes = inner_boxes(automatic_boxes(generator.generate(sample.rendering.pixels)), sample)
        matched += num_matched(boxes, sample.boxes())
        found += len(boxes)
        true += len(sample.scene.objects)
    return {
        "point_iou": float(np.mean(overlaps)),
        "auto_recall": matched / max(1, true),
        "auto_precision": matched / max(1, found),
    }


def mask_generator(model: Sam, thresholds: MaskThresholds) -> SamAutomaticMaskGenerator:
    """Segment-anything's own generator under a model's own thresholds."""
    from segment_anything import SamAutomaticMaskGenerator

    return SamAutomaticMaskGenerator(model, **asdict(thresholds))


def inner_boxes(boxes: np.ndarray, sample: Sample) -> np.ndarray:
    """Boxes of at most 0.8 of the picture, as the LISM recipe keeps: the background is dropped."""
    height, width = sample.rendering.object_ids.shape
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return boxes[areas <= _MAX_AREA * height * width]


def automatic_boxes(records: list[dict]) -> np.ndarray:
    """Boxes of automatic masks as ``[N, 4]`` x0, y0, x1, y1; the generator gives x, y, w, h."""
    boxes = np.array([record["bbox"] for record in records], dtype=float).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2] + 1
    return boxes


@torch.inference_mode()
def caption_with_transformers(folder: Path, images: list[Image.Image]) -> list[str]:
    """Greedy captions by transformers ``generate``."""
    from transformers import LlavaNextForConditionalGeneration, LlavaNextProcessor

    model: Any = LlavaNextForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    processor: Any = LlavaNextProcessor.from_pretrained(folder)
    request = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}]
    prompt = processor.apply_chat_template(request, add_generation_prompt=True)
    captions: list[str] = []
    for i in range(0, len(images), _BATCH):
        part = images[i : i + _BATCH]
        inputs = processor(images=part, text=[prompt] * len(part), return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=160, do_sample=False)
        captions += processor.batch_decode(
            ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
    return captions


def score_captions(captions: list[str], tests: list[Sample]) -> dict[str, float]:
    """Shares of true sentences, well-formed captions and true backgrounds."""
    told = [(t, s.scene) for c, s in zip(captions, tests, strict=True) for t in objects_told(c)]
    places = [[o for o in scene.objects if o.place == t.place] for t, scene in told]
    at_place = [(t, o[0]) for (t, _), o in zip(told, places, strict=True) if o]
    count = max(1, len(told))
    here = max(1, len(at_place))
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
        "place": len(at_place) / count,
        "shape_at_place": sum(t.shape == o.shape for t, o in at_place) / here,
        "colour_at_place": sum(t.colour == o.colour for t, o in at_place) / here,
        "pattern_at_place": sum(t.pattern == o.pattern for t, o in at_place) / here,
        "size_at_place": sum(t.size == o.size for t, o in at_place) / here,
        "well_formed": float(np.mean([is_well_formed(c) for c in captions])),
        "background": float(np.mean(backgrounds)),
        "light": float(np.mean(lights)),
    }


def evaluate_captioner(folder: Path, tests: list[Sample]) -> dict[str, float]:
    """:func:`score_captions` of the captioner's own captions."""
    return score_captions(caption_with_transformers(folder, [s.image for s in tests]), tests)
