"""Grounders of the real architectures, tiny, with random weights."""

from __future__ import annotations

from pathlib import Path

import torch

from glit.recipes.resources import mini_model

_SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 2}  # fmt: skip
_ENDS = {"vocab_size": 967, "bos_token_id": 965, "eos_token_id": 966, "pad_token_id": 966}
_SIZE = {"height": 64, "width": 64}


def _tokenizer(length: int):
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(mini_model("matcher"), model_max_length=length)


def owl(folder: Path, *, version: int) -> Path:
    """OWL-ViT (1) or OWLv2 (2)."""
    import transformers

    name = {1: "OwlViT", 2: "Owlv2"}[version]
    config = getattr(transformers, f"{name}Config")(
        text_config={**_SHAPE, **_ENDS, "max_position_embeddings": 16},
        vision_config={**_SHAPE, "image_size": 64, "patch_size": 16},
        projection_dim=32,
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForObjectDetection")(config)
    for layer in (model.box_head.dense0, model.box_head.dense1, model.box_head.dense2):
        layer.reset_parameters()  # the library draws them so large that boxes are empty
    model.save_pretrained(folder)
    pictures = getattr(transformers, f"{name}ImageProcessor")(size=_SIZE)
    getattr(transformers, f"{name}Processor")(pictures, _tokenizer(16)).save_pretrained(folder)
    return folder


def dino(folder: Path, *, mm: bool) -> Path:
    """Grounding DINO, or MM-Grounding-DINO, which LLMDet is."""
    import transformers
    from transformers import BertTokenizer, GroundingDinoImageProcessor, GroundingDinoProcessor

    name = "MMGroundingDino" if mm else "GroundingDino"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "a", "red", "ring", "small", "dog"]
    config = getattr(transformers, f"{name}Config")(
        backbone_config={"model_type": "swin", "image_size": 64, "patch_size": 4, "embed_dim": 16,
                         "depths": [1, 1, 1], "num_heads": [1, 2, 4], "window_size": 4,
                         "out_indices": [2, 3]},
        text_config={"model_type": "bert", "vocab_size": len(words), "hidden_size": 32,
                     "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
        d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=12,
        num_feature_levels=2,
    )  # fmt: skip
    torch.manual_seed(0)
    getattr(transformers, f"{name}ForObjectDetection")(config).save_pretrained(folder)
    pictures = GroundingDinoImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    vocabulary = {word: number for number, word in enumerate(words)}
    GroundingDinoProcessor(pictures, BertTokenizer(vocab=vocabulary)).save_pretrained(folder)
    return folder


def omdet(folder: Path) -> Path:
    """OmDet-Turbo."""
    from transformers import (
        DetrImageProcessor,
        OmDetTurboConfig,
        OmDetTurboForObjectDetection,
        OmDetTurboProcessor,
    )

    config = OmDetTurboConfig(
        backbone_config={"model_type": "swin", "image_size": 64, "patch_size": 4, "embed_dim": 16,
                         "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8], "window_size": 2,
                         "out_indices": [2, 3, 4]},
        text_config={"model_type": "clip_text_model", **_SHAPE, **_ENDS, "hidden_size": 48,
                     "projection_dim": 48, "max_position_embeddings": 77},
        use_timm_backbone=False, backbone=None, apply_layernorm_after_vision_backbone=False,
        image_size=64, class_embed_dim=48, text_projection_in_dim=48, text_projection_out_dim=48,
        task_encoder_hidden_dim=32, encoder_hidden_dim=32, encoder_in_channels=[32, 64, 128],
        encoder_projection_indices=[2], encoder_attention_heads=2, encoder_dim_feedforward=32,
        encoder_layers=1, decoder_hidden_dim=32, decoder_num_heads=2, decoder_num_layers=1,
        decoder_dim_feedforward=32, num_queries=10, num_feature_levels=3,
        vision_features_channels=[32, 32, 32],
    )  # fmt: skip
    torch.manual_seed(0)
    model = OmDetTurboForObjectDetection(config)
    torch.nn.init.normal_(model.language_backbone.text_projection)  # the library draws zeros
    model.save_pretrained(folder)
    pictures = DetrImageProcessor(size=_SIZE, do_pad=False)
    OmDetTurboProcessor(pictures, _tokenizer(77)).save_pretrained(folder)
    return folder


def sam3(folder: Path) -> Path:
    """SAM 3."""
    from transformers import Sam3Config, Sam3ImageProcessor, Sam3Model, Sam3Processor

    part = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}
    config = Sam3Config(
        vision_config={
            "backbone_config": {"model_type": "sam3_vit_model", **_SHAPE, "image_size": 56,
                                "patch_size": 14, "pretrain_image_size": 56, "window_size": 2,
                                "global_attn_indexes": [1]},
            "fpn_hidden_size": 32, "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
            "scale_factors": [4.0, 2.0, 1.0, 0.5],
        },
        text_config={"model_type": "clip_text_model", **_SHAPE, **_ENDS, "projection_dim": 32,
                     "max_position_embeddings": 32},
        geometry_encoder_config={**part, "num_layers": 1, "roi_size": 3},
        detr_encoder_config={**part, "num_layers": 1},
        detr_decoder_config={**part, "num_layers": 1, "num_queries": 6},
        mask_decoder_config={"hidden_size": 32, "num_upsampling_stages": 2,
                             "num_attention_heads": 2},
    )  # fmt: skip
    torch.manual_seed(0)
    Sam3Model(config).save_pretrained(folder)
    pictures = Sam3ImageProcessor(size={"height": 56, "width": 56})
    Sam3Processor(pictures, _tokenizer(32)).save_pretrained(folder)
    return folder


MAKERS = {
    "owlvit": lambda folder: owl(folder, version=1),
    "owlv2": lambda folder: owl(folder, version=2),
    "grounding-dino": lambda folder: dino(folder, mm=False),
    "mm-grounding-dino": lambda folder: dino(folder, mm=True),
    "omdet-turbo": omdet,
    "sam3": sam3,
}
"""By model type; each writes a folder and gives it back."""
