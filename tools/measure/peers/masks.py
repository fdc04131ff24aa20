"""SAM's automatic masks as boxes, by glit's small SAM with its trained weights, and by MobileSAM.

ultralytics builds SAM in its published sizes alone, and transformers has no encoder of MobileSAM.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tools.measure.peers.way import Comparison, Way, Work

_FEW, _FEW_LARGE = 8, 2
_MOBILE = "mobile_sam.pt"
"""MobileSAM's published weights, to be put into the folder of inputs."""
_NAMES = (
    (r"^image_encoder\.", "vision_encoder."),
    (r"\.blocks\.", ".layers."),
    (r"patch_embed\.proj\.", "patch_embed.projection."),
    (r"\bnorm(\d)\.", r"layer_norm\1."),
    (r"norm_final_attn", "layer_norm_final_attn"),
    (r"neck\.0", "neck.conv1"), (r"neck\.1", "neck.layer_norm1"),
    (r"neck\.2", "neck.conv2"), (r"neck\.3", "neck.layer_norm2"),
    (r"output_upscaling\.0", "upscale_conv1"), (r"output_upscaling\.1", "upscale_layer_norm"),
    (r"output_upscaling\.3", "upscale_conv2"),
    (r"((?:head|mlps\.\d)\.)layers\.0", r"\1proj_in"),
    (r"((?:head|mlps\.\d)\.)layers\.1", r"\1layers.0"),
    (r"((?:head|mlps\.\d)\.)layers\.2", r"\1proj_out"),
    (r"point_embeddings", "point_embed"),
    (r"mask_downscaling\.0", "mask_embed.conv1"),
    (r"mask_downscaling\.1", "mask_embed.layer_norm1"),
    (r"mask_downscaling\.3", "mask_embed.conv2"),
    (r"mask_downscaling\.4", "mask_embed.layer_norm2"),
    (r"mask_downscaling\.6", "mask_embed.conv3"),
    (r"prompt_encoder\.pe_layer\.positional_encoding_gaussian_matrix",
     "shared_image_embedding.positional_embedding"),
)  # fmt: skip
"""segment-anything's names of weights, and transformers' in their place."""


def _opened(inputs: Path) -> tuple[Any, Any, Any, list[Any]]:
    """The model, its shape and thresholds, and some scenes."""
    from glit.backends.sam.model import load_sam
    from glit.images import decode
    from glit.models.weights import resolve

    paths = sorted((inputs / "scenes" / "images").iterdir())[:_FEW]
    found = load_sam(resolve("mini-segmenter").path)
    return *found, [decode(path.read_bytes()) for path in paths]


def _opened_mobile(inputs: Path) -> tuple[Any, Any, Any, list[Any]]:
    """As :func:`_opened`, MobileSAM at as many points."""
    from glit.backends.sam.model import MaskThresholds, load_checkpoint

    _, _, thresholds, pictures = _opened(inputs)
    most = MaskThresholds(points_per_side=thresholds.points_per_side)
    return load_checkpoint(inputs / _MOBILE), None, most, pictures[:_FEW_LARGE]


def _glit(open_model: Any) -> Any:
    def prepare(inputs: Path, out: Path) -> Work:
        from glit.backends.sam.automatic import AutomaticMasks

        model, _, thresholds, pictures = open_model(inputs)
        masks = AutomaticMasks(model, thresholds)
        return lambda: [each.boxes.tolist() for each in masks(pictures)]

    return prepare


def _segment_anything(open_model: Any) -> Any:
    def prepare(inputs: Path, out: Path) -> Work:
        from dataclasses import asdict

        from segment_anything import SamAutomaticMaskGenerator

        model, _, thresholds, pictures = open_model(inputs)
        generator = SamAutomaticMaskGenerator(model, **asdict(thresholds))

        def work() -> list[Any]:
            found = [[each["bbox"] for each in generator.generate(picture)] for picture in pictures]
            return [[[x, y, x + w + 1, y + h + 1] for x, y, w, h in boxes] for boxes in found]

        return work

    return prepare


def _ultralytics(inputs: Path, out: Path) -> Work:
    os.environ["YOLO_CONFIG_DIR"] = str(out)
    from ultralytics.models.sam.build import build_mobile_sam
    from ultralytics.models.sam.predict import Predictor

    _, _, thresholds, pictures = _opened_mobile(inputs)
    settings = {
        "model": _MOBILE, "imgsz": 1024, "device": "cpu", "save": False, "verbose": False,
        "conf": thresholds.pred_iou_thresh, "iou": thresholds.box_nms_thresh,
    }  # fmt: skip
    predictor: Any = Predictor(overrides=settings)
    predictor.setup_model(build_mobile_sam(str(inputs / _MOBILE)), verbose=False)

    def work() -> list[Any]:
        found = [
            predictor(
                picture[..., ::-1], points_stride=thresholds.points_per_side,
                conf_thres=thresholds.pred_iou_thresh,
                stability_score_thresh=thresholds.stability_score_thresh,
                stability_score_offset=thresholds.stability_score_offset,
            )[0].boxes.xyxy.tolist()
            for picture in pictures
        ]  # fmt: skip
        return [[[*box[:2], box[2] + 1, box[3] + 1] for box in boxes] for boxes in found]

    return work


def _transformers(inputs: Path, out: Path) -> Work:
    from PIL import Image
    from transformers import SamConfig, SamModel, pipeline
    from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil

    model, shape, thresholds, pictures = _opened(inputs)
    weights = {}
    for name, value in model.state_dict().items():
        for old, new in _NAMES:
            name = re.sub(old, new, name)
        weights[name] = value
    side = shape.image_size
    config: Any = SamConfig(
        vision_config={
            "image_size": side, "patch_size": shape.patch_size, "hidden_size": shape.embed_dim,
            "num_hidden_layers": shape.depth, "num_attention_heads": shape.num_heads,
            "mlp_dim": 4 * shape.embed_dim, "global_attn_indexes": list(shape.global_attn_indexes),
            "window_size": shape.window_size, "use_rel_pos": shape.use_rel_pos,
            "output_channels": shape.prompt_dim, "num_pos_feats": shape.prompt_dim // 2,
        },
        prompt_encoder_config={
            "hidden_size": shape.prompt_dim, "image_size": side, "patch_size": shape.patch_size,
        },
        mask_decoder_config={
            "hidden_size": shape.prompt_dim, "mlp_dim": shape.decoder_mlp_dim,
            "num_attention_heads": shape.decoder_num_heads,
            "iou_head_hidden_dim": shape.iou_head_dim,
        },
    )  # fmt: skip
    peer = SamModel(config).eval()
    missing, unexpected = peer.load_state_dict(weights, strict=False)
    if unexpected or any("shared_embedding" not in name for name in missing):
        raise ValueError(f"transformers' SAM has other weights: {missing}, {unexpected}")
    processor = SamImageProcessorPil(
        size={"longest_edge": side}, pad_size={"height": side, "width": side},
        image_mean=[each / 255 for each in shape.pixel_mean],
        image_std=[each / 255 for each in shape.pixel_std],
    )  # fmt: skip
    make_masks: Any = pipeline(
        "mask-generation", model=peer, image_processor=processor, device="cpu"
    )
    images = [Image.fromarray(picture) for picture in pictures]

    def work() -> list[Any]:
        found = [
            make_masks(
                image, points_per_crop=thresholds.points_per_side, points_per_batch=64,
                pred_iou_thresh=thresholds.pred_iou_thresh,
                stability_score_thresh=thresholds.stability_score_thresh,
                stability_score_offset=thresholds.stability_score_offset,
                crops_nms_thresh=thresholds.box_nms_thresh, output_bboxes_mask=True,
            )["bounding_boxes"].tolist()
            for image in images
        ]  # fmt: skip
        return [[[*box[:2], box[2] + 1, box[3] + 1] for box in boxes] for boxes in found]

    return work


def _judge(inputs: Path, answer: Any, ours: Any) -> str:
    """How many boxes lie within a pixel of one of glit's."""
    near = [
        any(max(abs(a - b) for a, b in zip(box, own, strict=True)) <= 1 for own in owns)
        for boxes, owns in zip(answer, ours, strict=True)
        for box in boxes
    ]
    return f"{sum(near)} of {len(near)} boxes within a pixel of glit's {sum(map(len, ours))}"


COMPARISON = Comparison(
    title="masks of 8 scenes as boxes, by a small SAM at 10 points a side",
    judge=_judge,
    ways=(
        Way(name="glit", prepare=_glit(_opened), package="segment_anything"),
        Way(
            name="segment-anything", prepare=_segment_anything(_opened), note="masks too",
            package="segment_anything",
        ),
        Way(name="transformers", prepare=_transformers, package="transformers", note="masks too"),
    ),
)  # fmt: skip
MOBILE = Comparison(
    title="masks of 2 scenes as boxes, by MobileSAM at 10 points a side",
    judge=_judge,
    needs=_MOBILE,
    ways=(
        Way(name="glit", prepare=_glit(_opened_mobile), package="segment_anything"),
        Way(
            name="segment-anything", prepare=_segment_anything(_opened_mobile), note="masks too",
            package="segment_anything",
        ),
        Way(name="ultralytics", prepare=_ultralytics, package="ultralytics", note="masks too"),
    ),
)  # fmt: skip
