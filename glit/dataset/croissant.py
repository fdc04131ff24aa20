"""Write ``croissant.json``: the dataset in Croissant 1.1, with RAI fields and provenance.

Made from the manifest alone. What only the owner of the images knows says "To be completed".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from glit.data.schema import (
    CAPTIONS,
    DATASET_SCHEMA,
    DROPS_SCHEMA,
    DUPLICATES_SCHEMA,
    MASKS,
    arrow_type,
    hf_feature,
)
from glit.dataset.card import origins, plugin_title
from glit.dataset.manifest import Manifest, RecordedRecipe
from glit.errors import InputError, first_line
from glit.stages import all_steps
from glit.stages.pack import Pack
from glit.storage.store import to_json

CROISSANT = "croissant.json"
YOURS = "To be completed: "
"""Before what a build cannot know."""
FROM_FILES = "no model; 1 where a file beside the image gives a region to a sentence, else 0"
_BIASES = (
    "Captions and regions by a model carry the biases of what that model was trained on; "
    "nobody has checked each one.",
    "A matcher prefers what was frequent in its training data, and large regions to small "
    "ones; a sentence about something rare is more likely to get a wrong region.",
)
_WITH_REGIONS = ", its sentences, candidate regions, and the regions that the sentences describe."
_PARQUET = "application/x-parquet"
_JSON_LINES = "application/jsonlines"
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "prov": "http://www.w3.org/ns/prov#",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_TYPES = {
    "string": "sc:Text",
    "bool": "sc:Boolean",
    **{f"int{bits}": f"cr:Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"cr:UInt{bits}" for bits in (8, 16, 32, 64)},
    "float": "cr:Float32",
    "double": "cr:Float64",
}
"""Of all that :func:`glit.data.schema.is_column_type` takes."""
_ABOUT = {
    "sample_id": "SHA-256 of the image file, hex",
    "image": "The image as it was ingested",
    "caption": "The long caption",
    "caption_source": "Where the caption is from",
    "sentences": "Sentences of the caption; characters [char_start, char_end)",
    "regions": "Candidate regions: boxes x0, y0, x1, y1 in pixels of the upright image, from its "
    "upper left corner, x1 and y1 exclusive",
    "similarity": "Cosine of every sentence with every region, row-major",
    "image_similarity": "Cosine of every sentence with the whole image",
    "phrase_similarity": "Cosine of every sentence's head phrase with every region",
    "agreement": "How far a detector asked for a sentence's head phrase agrees with every region",
    "pairs": "Numbers of a sentence and of the region chosen for it, best pair first",
}


def croissant(manifest: Manifest, *, name: str) -> bytes:
    """Make the content of ``croissant.json``.

    Args:
        manifest: of a finished dataset.
        name: of the dataset: its folder's.
    """
    return to_json(
        {
            "@context": _CONTEXT,
            "@type": "sc:Dataset",
            "conformsTo": [
                "http://mlcommons.org/croissant/1.1",
                "http://mlcommons.org/croissant/RAI/1.0",
            ],
            "name": name,
            "description": (
                f"{manifest.counts.shipped} images, each with a long caption"
                + (_WITH_REGIONS if manifest.recipe.has_regions else " and its sentences.")
            ),
            "version": f"{manifest.schema_version}.0.0",
            "keywords": [
                "long captions",
                *(["region grounding"] if manifest.recipe.has_regions else []),
                "vision-language",
            ],
            "distribution": [*_files(manifest), _data_files()],
            "recordSet": [_samples(manifest), _left_out("drops"), _left_out("duplicates")],
            **_provenance(manifest),
            **_usage(manifest),
            **_responsible(manifest),
        }
    )


def licensed(content: bytes, licence: str) -> bytes:
    """The content of ``croissant.json`` with a licence, or the address of one; its own stays.

    Raises:
        InputError: it is no JSON object.
    """
    try:
        found = json.loads(content)
    except ValueError as error:
        raise InputError(f"{CROISSANT}: not JSON ({first_line(error)})") from error
    if not isinstance(found, dict):
        raise InputError(f"{CROISSANT}: no JSON object")
    return to_json({"license": licence, **found})


def _usage(manifest: Manifest) -> dict[str, Any]:
    """The models whose terms hold for what they made, and where pictures state their own."""
    works = [
        {
            "@type": "sc:CreativeWork",
            "name": f"{role}: {model.name}",
            "license": model.licence or "unknown",
        }
        for role, model in sorted(manifest.models.items())
    ]
    if "rights" in manifest.columns:
        works.append(
            {
                "@type": "sc:CreativeWork",
                "name": "rights in the pictures",
                "description": "The column rights has what each picture says of copyright, "
                "licence, data mining and its digital source type.",
            }
        )
        if "captioner" in manifest.models:
            source = "https://schema.org/TrainedAlgorithmicMediaDigitalSource"
            works.append(
                {"@type": "sc:CreativeWork", "name": "captions", "digitalSourceType": source}
            )
    return {"usageInfo": works} if works else {}


def _files(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for name, found in sorted(manifest.files.items()):
        yield {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "contentUrl": name,
            "contentSize": f"{found.bytes} B",
            "encodingFormat": _JSON_LINES if name.endswith(".jsonl") else _PARQUET,
            "sha256": found.sha256,
        }


def _data_files() -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": "data-files",
        "name": "data-files",
        "encodingFormat": _PARQUET,
        "includes": "data/*.parquet",
    }


def _samples(manifest: Manifest) -> dict[str, Any]:
    schema = [*DATASET_SCHEMA]
    further = [each for step in all_steps() for each in getattr(step, "dataset_columns", ())]
    known: dict[str, Any] = dict([CAPTIONS, MASKS, *further])
    for name, feature in manifest.columns.items():
        kind = known.get(name)  # in the order of its parts, which JSON does not keep
        is_known = kind is not None and hf_feature(kind) == feature
        schema.append(pa.field(name, kind if is_known else arrow_type(feature)))
    return {
        "@type": "cr:RecordSet",
        "@id": "samples",
        "name": "samples",
        "description": "A record is an image.",
        "key": {"@id": "samples/sample_id"},
        "field": [_field("samples", field.name, field.type) for field in schema],
    }


def _field(record: str, name: str, kind: Any) -> dict[str, Any]:
    where = {"fileSet": {"@id": "data-files"}, "extract": {"column": name}}
    field: dict[str, Any] = {"@type": "cr:Field", "@id": f"{record}/{name}", "name": name}
    if about := _about(name):
        field["description"] = about
    if name == "image":
        source = {**where, "transform": {"jsonPath": "bytes"}}
        return {**field, "dataType": "sc:ImageObject", "source": source}
    inner = getattr(kind, "value_type", kind)
    if not hasattr(inner, "fields"):
        field |= {"dataType": _TYPES[str(inner)], "source": where}
        return field if inner is kind else {**field, "isArray": True, "arrayShape": "-1"}
    if inner is not kind:
        field["repeated"] = True
    if name == "regions":
        field["dataType"] = "cr:BoundingBox"
    field["subField"] = [
        {
            "@type": "cr:Field",
            "@id": f"{record}/{name}/{each.name}",
            "name": each.name,
            "dataType": _TYPES[str(each.type)],
            "source": {**where, "transform": {"jsonPath": each.name}},
        }
        for each in inner
        if str(each.type) in _TYPES  # not lists in lists, which Croissant has no words for
    ]
    return field


def _about(column: str) -> str:
    texts = [_ABOUT, *(getattr(step, "about", {}) for step in all_steps())]
    return next((each[column] for each in texts if column in each), "")


def _left_out(name: str) -> dict[str, Any]:
    schema = {"drops": DROPS_SCHEMA, "duplicates": DUPLICATES_SCHEMA}[name]
    about = {
        "drops": "Images that were dropped, with the stage and the reason.",
        "duplicates": "Images that repeat another one.",
    }
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": about[name],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{field.name}",
                "name": field.name,
                "dataType": _TYPES[str(field.type)],
                "source": {
                    "fileObject": {"@id": f"{name}.parquet"},
                    "extract": {"column": field.name},
                },
            }
            for field in schema
        ],
    }


def _provenance(manifest: Manifest) -> dict[str, Any]:
    """The run and its models, in the words of PROV-O."""
    agents = [
        {"@type": "prov:SoftwareAgent", "prov:label": text} for text in _model_lines(manifest)
    ]
    return {
        "prov:wasDerivedFrom": {
            "@type": "prov:Entity",
            "prov:label": f"{manifest.counts.ingested} image files given to glit build",
        },
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": f"glit build, recipe {manifest.recipe.name}, fingerprint "
            f"{manifest.fingerprints.get(Pack.name)}",
            "prov:wasAssociatedWith": [
                {"@type": "prov:SoftwareAgent", "prov:label": f"glit {manifest.glit_version}"},
                *agents,
            ],
        },
    }


def _model_lines(manifest: Manifest) -> list[str]:
    return [
        f"{role}: {model.name} at {model.revision}, sha256 {model.sha256}, licence "
        f"{model.licence or 'unknown'}"
        for role, model in sorted(manifest.models.items())
    ]


def _proved(manifest: Manifest) -> dict[str, Any]:
    """Return the claims on the annotations that people's verdicts prove."""
    said = [
        f"Certified: {each.claim}; judged by {', '.join(each.judges)}; verdicts and plan: "
        f"{each.verdicts}."
        + (f" Cohen's kappa {each.kappa:.2f}." if each.kappa is not None else "")
        for each in manifest.certificates
    ]
    return {"rai:dataAnnotationAnalysis": said} if said else {}


def _responsible(manifest: Manifest) -> dict[str, Any]:
    """The fields of Croissant's RAI vocabulary, as far as the run tells."""
    recipe, counts = manifest.recipe, manifest.counts
    drops = ", ".join(f"{number} {key}" for key, number in sorted(counts.drops.items()))
    return {
        "rai:dataCollection": (
            f"{counts.ingested} image files were given to glit build. {YOURS}where the images "
            "are from, who took them, and under which terms."
        ),
        "rai:dataCollectionMissingData": (
            f"{counts.dropped} images were dropped ({drops or 'none'}) and "
            f"{counts.duplicates} repeat another; drops.parquet and duplicates.parquet name "
            f"them. {counts.without_pair or 0} of the rest have no pair."
        ),
        "rai:dataPreprocessingProtocol": [
            "Files were decoded, turned upright and hashed; damaged ones were dropped, and of "
            "images with the same bytes one was kept"
            + _near(recipe)
            + ". "
            + f"Limits of [ingest]: {_options(recipe.tables['ingest'])}."
        ],
        "rai:dataAnnotationProtocol": _protocol(manifest),
        **_proved(manifest),
        "rai:machineAnnotationTools": [f"glit {manifest.glit_version}", *_model_lines(manifest)],
        "rai:dataBiases": [
            f"{YOURS}who and what is in the images, and in what proportion.",
            *([] if recipe.pairs_from_files else _BIASES),
        ],
        "rai:dataLimitations": [
            f"Similarity: {FROM_FILES}."
            if recipe.pairs_from_files
            else "A similarity is a cosine, not a probability"
            + (
                "; probability was calibrated and is valid for data like the calibration data."
                if manifest.calibration
                else ", and no probability was calibrated."
            ),
            "A sentence without a pair may describe the whole image, or nothing in it.",
        ],
        "rai:dataUseCases": [
            "Training and measuring image-text models on long captions and on regions."
        ],
        "rai:personalSensitiveInformation": [
            f"{YOURS}whether people, texts or places in the images can be recognised."
        ],
    }


def _near(recipe: RecordedRecipe) -> str:
    bits = recipe.table("ingest").get("near_duplicates", -1)
    return f", as of images within {bits} bits of perceptual hash" if bits >= 0 else ""


def _protocol(manifest: Manifest) -> list[str]:
    recipe = manifest.recipe
    files = recipe.pairs_from_files
    asked = f" It was asked: {manifest.prompt}" if manifest.prompt else ""
    said = [
        f"Captions: {recipe.tables['caption']['backend']}, {_model(manifest, 'captioner')}.{asked}",
        f"Sentences: the splitter {recipe.tables['split']['splitter']}.",
    ]
    if not manifest.recipe.has_regions:
        return [*said, "Regions, similarity and pairs: none.", *origins(manifest)]
    said += [
        f"Regions: {recipe.tables['propose']['backend']}, {_model(manifest, 'proposer')}; "
        f"{_options(recipe.tables['propose'], 'min_area', 'max_area', 'max_iou', 'max_regions')}.",
        f"Similarity: {FROM_FILES if files else _model(manifest, 'matcher')}.",
    ]
    pair = recipe.tables["pair"]
    least = [float(pair.get(f"min_{key}", 0.0)) for key in ("probability", "support")]
    limits = f"probability >= {least[0]}, support >= {least[1]}"
    said.append(f"Pairs: the rule {pair['rule']}; {limits}.")
    used = ", ".join(map(plugin_title, recipe.plugins))
    return [*said, *([f"Parts of plugins: {used}."] if used else []), *origins(manifest)]


def _model(manifest: Manifest, role: str) -> str:
    model = manifest.models.get(role)
    return f"{model.name} at {model.revision}" if model else "no model"


def _options(table: Mapping[str, Any], *names: str) -> str:
    return ", ".join(f"{key} {table[key]}" for key in names or sorted(table) if key in table)
