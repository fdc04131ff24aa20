"""What to give ``--format``, for the tables of the documentation."""

from __future__ import annotations

CAPTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "docci": (
        (
            "`docci_descriptions.jsonlines`",
            "`images/` beside it",
            "`train`, `test`, `qual_dev`, `qual_test`",
        ),
    ),
    "dci": (
        (
            "the folder `densely_captioned_images`; captions are `extra_caption`",
            "its `photos/`",
            "of its `splits.json`: `train`, `valid`, `test`; `all`",
        ),
    ),
    "dci-full": (
        ("the same; captions are `short_caption` and `extra_caption`", "its `photos/`", "the same"),
    ),
    "urban1k": (("the folder `Urban1k`", "its `image/`", "none"),),
    "coco": (
        ("`captions_val2017.json` and the like", "the folder that holds the files", "none"),
        (
            "Karpathy's `dataset_coco.json`",
            "the folder that holds `val2014/`",
            "`train`, `restval`, `val`, `test`",
        ),
    ),
    "flickr30k": (
        ("`results_20130124.token`", "the image folder", "none"),
        ("Karpathy's `dataset_flickr30k.json`", "the image folder", "`train`, `val`, `test`"),
    ),
    "sharegpt4v": (
        (
            "`share-captioner_coco_lcs_sam_1246k_1107.json`",
            "the folder its paths start from",
            "none",
        ),
    ),
    "iiw": (
        (
            "the folder `imageinwords/datasets`",
            "a folder with `docci/`, `docci_aar/` and `dci/`, or with all files",
            "`DOCCI_Test`, `IIW-400`, `DCI_Test`; all three without it",
        ),
        ("one `data.jsonl`", "`images/` beside it", "none"),
    ),
    "goal": (
        (
            "a list of GOAL's `datasets/`: `DCI_test.json`, …",
            "a folder that holds the last parts of the paths",
            "none",
        ),
    ),
    "goal-joint": (
        ("a joint set of GOAL: `DCI_test_joint_sim_max_11.json`, …", "the same", "none"),
    ),
    "himo-docci": (("`himo_docci_data.json`", "`images/` beside it", "none"),),
}
"""Formats of ``glit eval``: the annotations, where the images are, and the parts."""

REGIONS: dict[str, tuple[str, str]] = {
    "finehard": (
        "`jsonfiles/` of FineHARD (FG-CLIP), or a file of it",
        "phrases; sentences if the caption lacks the expression",
    ),
    "flickr30k-entities": ("the folder with `Annotations` and `Sentences`", "phrases"),
    "goal-segments": (
        "the list of GOAL's trainer: `docci_segment_sim_bbox_del_org.json` and the like",
        "sentences",
    ),
    "grit": ("a Parquet file of GRIT (Kosmos-2) as img2dataset leaves it, or a folder", "phrases"),
    "hf": (
        "Parquet of the Hugging Face Hub with `image` and `objects`, or a folder of it",
        "categories; sentences of `pairs`",
    ),
    "hf-xyxy": ("the same, with `bbox` of two corners", "the same"),
    "mdetr": ("MDETR's JSON", "phrases"),
    "odvg": (
        "ODVG lines of MM-Grounding-DINO, GroundingCap-1M of LLMDet",
        "phrases, or categories",
    ),
    "refcoco": (
        "`refs(unc).p` or the like, with `instances.json` beside it; RefCOCO, + and g",
        "sentences",
    ),
    "tao": (
        "`annotations.jsonl` of NVIDIA TAO's 2D grounding, or the ODVG it trains on",
        "phrases",
    ),
    "visual-genome": ("`region_descriptions.json`", "sentences"),
    "coco-instances": (
        "`instances_val2017.json` of COCO, `lvis_v1_val.json` of LVIS, and the like",
        "categories, masks",
    ),
    "cvat": ("`annotations.xml` of CVAT for images 1.1", "labels, masks"),
    "label-studio": ("Label Studio's export as JSON", "labels, masks of polygons"),
    "labelme": ("a folder of LabelMe's JSON files, or one", "labels, masks of polygons"),
    "voc": (
        "Pascal VOC's folder with `Annotations` and `JPEGImages`, or a folder of its XML",
        "labels",
    ),
    "yolo": (
        "`data.yaml`, or the folder with `labels` and `images`, or with `classes.txt`",
        "classes",
    ),
}
"""Formats with boxes: the annotations, and what the boxes get."""
