"""Command lines that use every command of glit, and with each every option and choice.

They are read off the Typer app and the recipes' tables, so that a new one cannot be forgotten: a
required argument or an option with a value that this file has no value for is an error.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from glit.cli.main import app
from glit.evaluation import label_maps
from glit.evaluation.readers import questions
from glit.evaluation.tasks import TASKS
from glit.exporters import EXPORTERS
from glit.inputs.published import measured
from glit.recipes.config import Choice, on_by_default
from glit.recipes.resources import builtin_recipes, mini_model
from glit.stages import all_steps
from glit.training.objectives import OBJECTIVES

SCENES, CAPTIONS, DATASET, NEW = "{scenes}", "{captions}", "{dataset}", "{new}"
ANNOTATIONS, EXPORTED, SELECTED = "{annotations}", "{exported}", "{selected}"
REFERENCES, REGIONS = "{references}", "{regions}"
"""Filled in by whoever runs a line: a folder of images, its captions, a finished dataset that the
line may spoil, a path where nothing is yet, what the dataset exports as goal and the folder of
that, a part of the dataset, a list of other images, and a file of regions of the images.
``--locked`` wants the lock of the recipe mini in the current folder."""

ENDLESS = {"--serve"}
"""Options with which a command does not end by itself; they have tests of their own."""

CLUSTER = "127.0.0.1:1"
"""Where no cluster is."""

BY_HAND = {
    "attach", "pairs label", "pairs calibrate", "pairs correct", "pairs apply", "pairs judge",
    "push",
}  # fmt: skip
"""Commands that want a person's answers or account, a model that answers, or a dataset without
pictures; of them only the help."""


def command_lines() -> Iterator[list[str]]:
    """Every command plain, then once with each value of each of its options."""
    yield ["--version"]
    yield from _below(typer.main.get_command(app), [])


def _below(command: Any, words: list[str]) -> Iterator[list[str]]:
    yield [*words, "--help"]
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            if not inner.hidden:
                yield from _below(inner, [*words, name])
        return
    if " ".join(words) in BY_HAND:
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    plain = [*words, *(_values(words, each)[0] for each in arguments if each.required)]
    for option in options:
        if option.required:
            plain += [option.opts[0], _values(words, option)[0]]
        elif option.name == "executor":
            plain += ["--executor", "local"]  # what else is missing shows without Ray alone
    if words == ["stats"]:
        plain += ["--format", "captions"]
    if words == ["merge"]:
        plain += [SELECTED]
    if words == ["overlap"]:
        plain += [REFERENCES]
    if words == ["view"]:
        plain += ["-o", NEW]
    yield plain
    if words == ["stats"]:
        yield ["stats", DATASET, "--summary"]
    for option in options:
        if set(option.opts) & ENDLESS or (option.required and option.multiple):
            continue
        if option.is_flag and (words[0], option.name) not in _OF_COMMAND:
            yield [*plain, option.opts[0]]
            continue
        for value in _values(words, option):
            yield [*plain, option.opts[0], value, *_companions(words, value)]


def _companions(words: list[str], value: str) -> list[str]:
    """What a value does not make sense without."""
    table = value.partition(".")[0] if "=" in value else ""
    if any(step.name == table and not on_by_default(step.config()) for step in all_steps()):
        return ["--set", f"{table}.enabled=false"]  # a step that is off refuses other keys alone
    if words == ["overlap"] and value == SCENES:
        return ["--page", f"{NEW}.html"]
    if words == ["overlap"] and value == "0.9":
        return ["--model", "mini-matcher"]
    if words == ["select"] and value in ("0.95", "mini-matcher"):
        return ["--model", "mini-matcher"] if value == "0.95" else ["--distinct", "0.9"]
    if words == ["select"] and value in ("width", "sample_id", "6"):
        return ["--sample", "2"] if value == "width" else ["--split", "a=0.5,b=0.5"]
    if value == CLUSTER:
        return ["--executor", "ray"]
    if words == ["export"] and value == "mini-matcher":
        return ["--to", "lance"]
    if words == ["explain"] and value == "mini-matcher":
        return ["-o", f"{NEW}.html"]
    if words == ["bench", "objectives"]:
        return ["--train", DATASET, "--test", DATASET, "--lr", "1e-3"]
    if words != ["build"]:
        return []
    regions = value == "provided" or ".backend=provided" in value
    provided = ("captions", "annotated", "provided", "sample", "caption.backend=provided")
    return [
        *(["--captions", CAPTIONS] if value in provided else []),
        *(["--regions", REGIONS] if regions and not value.startswith("caption.") else []),
    ]


_OF_COMMAND: dict[tuple[str, str], list[str]] = {
    ("audit", "format"): ["images"],
    ("audit", "model"): ["mini-matcher"],
    ("audit", "page"): [f"{NEW}.html"],
    ("audit", "split"): [],
    ("audit", "what"): [SCENES],
    ("bench objectives", "settings"): ["train.epochs=1"],
    ("bench objectives", "recipe"): ["siglip"],
    ("build", "images"): [SCENES],
    ("doctor", "settings"): ["propose.backend=sam"],
    ("estimate", "images"): ["8k"],
    ("eval", "caption"): ["short"],
    ("eval", "settings"): ["evaluate.precision=float32"],
    ("export", "no_thumbnails"): [],
    ("export", "without_images"): [],
    ("import", "form"): ["goal-train"],
    ("import", "images"): [EXPORTED],
    ("import", "output"): [f"{NEW}.jsonl"],
    ("import", "split"): ["all"],
    ("pair", "settings"): ["pair.rule=centred"],
    ("pairs", "confidence"): ["0.9"],
    ("pairs certify", "num"): ["30"],
    ("pairs", "error"): ["0.1"],
    ("pairs", "judged"): [],
    ("pairs", "of"): ["sentences"],
    ("pairs", "output"): [],
    ("pairs", "part"): ["largest"],
    ("pairs", "unsure"): ["right"],
    ("pairs", "verdicts"): [f"{NEW}.jsonl"],
    ("pair", "recipe"): ["lism"],
    ("import-model", "checkpoint"): [str(mini_model("clip") / "model.safetensors")],
    ("import-model", "like"): ["mini-clip"],
    ("merge", "datasets"): [DATASET],
    ("overlap", "cosine"): ["0.9"],
    ("overlap", "page"): [f"{NEW}.html"],
    ("overlap", "output"): [],
    ("overlap", "split"): [],
    ("query", "output"): [f"{NEW}.parquet"],
    ("recipes", "settings"): ["propose.backend=sam"],
    ("select", "by"): ["width"],
    ("select", "distinct"): ["0.95"],
    ("select", "near"): ["6"],
    ("select", "sample"): ["5"],
    ("select", "shares"): ["train=0.5,val=0.5"],
    ("select", "together"): ["sample_id"],
    ("stats", "captions"): [CAPTIONS],
    ("stats", "format"): ["captions"],
    ("stats", "split"): ["all"],
    ("stats", "summary"): [],
    ("train", "run"): [NEW],
    ("train", "settings"): ["train.epochs=1"],
    ("view", "as_json"): [],
}
"""Values of a command's own, by its name or the first word of it, and the parameter's; none of an
option that wants other arguments than the command's plain line has."""


def _values(words: list[str], parameter: Any) -> list[str]:
    if choices := _literal(parameter.type_descriptor.annotation):
        return list(map(str, choices))
    for command in (" ".join(words), words[0]):
        if (command, parameter.name) in _OF_COMMAND:
            return _OF_COMMAND[command, parameter.name]
    known: dict[str, list[str]] = {
        "against": [REFERENCES],
        "alpha": ["0.3"],
        "annotations": [ANNOTATIONS],
        "captions": [CAPTIONS],
        "compare": ["mini-matcher"],
        "dataset": [DATASET],
        "embeddings": ["mini-matcher"],
        "end": ["mini-clip"],
        "epochs": ["1"],
        "false_sentences": [CAPTIONS],
        "gallery": ["8"],
        "image_root": [SCENES],
        "images": [SCENES],
        "format": ["glit", *measured(), *questions.READERS, *label_maps.READERS, "lvis", "refcoco"],
        "limit": ["2"],
        "maps": ["mini-matcher"],
        "lrs": ["1e-3"],
        "model": ["mini-matcher"],
        "most": ["2"],
        "num": ["2"],
        "num_images": ["1"],
        "num_scenes": ["2"],
        "num_seeds": ["1"],
        "other": [DATASET],
        "objective": list(OBJECTIVES),
        "objectives": ["clip"],
        "output": [NEW],
        "settings": list(_settings()),
        "ray_address": [CLUSTER],
        "regions": [REGIONS],
        "max_drops": ["99%"],
        "max_hours": ["9"],
        "max_tokens": ["2M"],
        "log_json": [f"{NEW}.jsonl"],
        "metrics": ["0"],
        "reason": ["corrupt"],
        "port": ["0"],
        "price": ["2.5"],
        "gpus": ["8", "8xH100"],
        "cores": ["64"],
        "rates": ["score=12"],
        "recipe": list(builtin_recipes()),
        "repeats": ["1"],
        "sample": ["000000.png"],
        "seed": ["1"],
        "size": ["64"],
        "sizes": ["32"],
        "split": ["test"],
        "sql": ["SELECT count(*) FROM samples"],
        "stage": ["ingest"],
        "start": ["mini-clip"],
        "task": list(TASKS),
        "test": [DATASET],
        "to": list(EXPORTERS),
        "together": ["4"],
        "tokenizer": ["mini-matcher"],
        "train": [DATASET],
        "validation": [DATASET],
        "where": ["len(pairs) > 0"],
    }
    if parameter.name not in known:
        raise LookupError(
            f"glit {' '.join(words)}: {parameter.opts[0]} is new; give {__name__} a value for it"
        )
    return known[parameter.name]


def _settings() -> Iterator[str]:
    """A ``table.key=value`` for every choice that the tables of a build offer."""
    for step in all_steps():
        choice: Choice | None = getattr(step.config, "choice", None)
        if choice is not None:
            yield from (f"{step.name}.{choice.key}={value}" for value in choice.options())
        kinds = typing.get_type_hints(step.config)
        for field in dataclasses.fields(step.config):
            values = _literal(kinds[field.name])
            yield from (f"{step.name}.{field.name}={value}" for value in values)


def _literal(kind: Any) -> tuple[Any, ...]:
    """The values of a Literal, or of one beside None; nothing for another type."""
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    return tuple(value for each in typing.get_args(kind) for value in _literal(each))


def filled(line: list[str], folder: Path, number: int) -> list[str]:
    """A line with its places filled: scenes and dataset lie in ``folder``.

    >>> filled(["glit", "scenes", "-o", NEW], Path("x"), 7)
    ['glit', 'scenes', '-o', 'x/new/7']
    """
    places = {
        SCENES: folder / "scenes" / "images",
        CAPTIONS: folder / "scenes" / "captions.jsonl",
        DATASET: folder / "datasets" / str(number),
        NEW: folder / "new" / str(number),
        ANNOTATIONS: folder / "goal" / "goal.json",
        EXPORTED: folder / "goal",
        REGIONS: folder / "regions.jsonl",
        SELECTED: folder / "selected",
        REFERENCES: folder / "references.parquet",
    }
    return [str(places.get(word, word)).replace(NEW, str(places[NEW])) for word in line]
