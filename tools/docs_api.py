"""The names of ``import glit`` in Markdown, from signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer

import glit
from glit import api as _api
from glit.cli.main import app

EXAMPLES = {
    "add": 'glit.add("dataset", limit=1000)',
    "apply_corrections": 'glit.apply_corrections("dataset", "corrected", ["mine.jsonl"])',
    "audit": 'report = glit.audit("captions_train2017.json", images="train2017")',
    "build": 'glit.build("photos", "dataset", recipe="laptop", settings=["score.batch_size=8"])',
    "certify": 'found = glit.certify("dataset", "verdicts.jsonl", error=0.05)',
    "clean": 'freed = glit.clean("dataset")',
    "attach": 'glit.attach("annotations", ["photographs"], "whole")',
    "diff": 'glit.diff("dataset", "rebuilt")',
    "evaluate": '(result,) = glit.evaluate("retrieval", "run", "held-out")',
    "export": 'glit.export("dataset", to="coco", output="coco", where="width > 640")',
    "judge": 'glit.judge("dataset", "judged.jsonl", settings=["caption.backend=vllm"])',
    "load_recipe": 'recipe = glit.load_recipe("flism", overrides=["pair.rule=lism"])',
    "merge": 'glit.merge(["one", "two"], "together")',
    "open_dataset": 'row = glit.open_dataset("dataset")[0]',
    "overlap": 'found = glit.overlap("dataset", "test-set.parquet")',
    "pair": 'glit.pair("dataset", "by-centred", settings=["pair.rule=centred"])',
    "push": 'glit.push("dataset", "OWNER/NAME", private=True)',
    "references": 'glit.references("test-set", "test-set.parquet")',
    "retry": 'glit.retry("dataset", reason="too_large", settings=["ingest.max_pixels=300000000"])',
    "select": 'glit.select("dataset", "wide", where="width > 640", sample=500)',
    "split": 'glit.split("dataset", "parts", {"train": 0.98, "val": 0.02})',
    "estimate": 'glit.estimate("pilot", images=10_000_000, gpus=8, cores=64, price=2.5)',
    "status": 'glit.status("dataset")',
    "train": 'run = glit.train("dataset", "run", recipe="fast-goal", settings=["train.epochs=1"])',
    "verify": 'assert glit.verify("dataset") == []',
}
"""One call of every function; a test holds them against the signatures."""
COMMON = 3
"""An argument that so many functions share is explained once, above them."""
_ALIASES = {"ExecutorChoice": "'auto' | 'ray' | 'local'"}
_COMMANDS = {
    "apply_corrections": "pairs apply",
    "certify": "pairs certify",
    "evaluate": "eval",
    "judge": "pairs judge",
    "references": "overlap",
    "split": "select",
}
"""Commands of functions that have another name."""


def api() -> Iterator[str]:
    """Functions, then classes, then what functions return."""
    names = {name: getattr(glit, name) for name in glit.__all__ if not name.startswith("__")}
    functions = {name: each for name, each in names.items() if inspect.isfunction(each)}
    counts = Counter(line for each in functions.values() for line in _arguments(each).values())
    by_name: dict[str, str] = {}
    for line, count in counts.most_common():
        if count >= COMMON and ": " in line:
            by_name.setdefault(line.split("`")[1], line)
    shared = set(by_name.values())
    yield "## Functions\n\n`help(glit.NAME)` prints types and defaults; `PathLike` is `str | Path`."
    yield "\nArguments of several functions:\n"
    yield from sorted(shared)
    for name, each in functions.items():
        yield from _function(name, each, shared)
    yield "\n## Classes"
    for name, each in names.items():
        if inspect.isclass(each):
            yield from _class(name, each)
    yield "\n## What functions return"
    returned = {
        found
        for each in functions.values()
        for found in re.findall(r"[A-Z]\w+", str(inspect.signature(each).return_annotation))
    }
    for name, module in _imported().items():
        if name in returned - names.keys():
            yield from _class(name, getattr(importlib.import_module(module), name))


def _imported() -> dict[str, str]:
    """Module of every name that annotations of the API use."""
    tree = ast.parse(inspect.getsource(_api))
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    return {
        alias.name: each.module
        for each in imports
        if each.module and each.module.startswith("glit.")
        for alias in each.names
        if alias.name[0].isupper()
    }


def _function(name: str, function: Any, shared: set[str]) -> Iterator[str]:
    about, sections = _sections(function)
    yield f"\n### `{name}`\n\n```py\n{EXAMPLES[name]}\n```\n\n{about}\n"
    arguments = _arguments(function)
    elsewhere: dict[str, list[str]] = {}
    link, told_there = _command(name)
    for each, line in arguments.items():
        told = line.partition(": ")[2]
        if line in shared:
            elsewhere.setdefault("Also", []).append(f"`{each}`")
        elif told and told_there.get(each) == _bare(told):
            elsewhere.setdefault(f"As in {link}:", []).append(f"`{each}`")
        elif other := re.fullmatch(r"as (?:in|for) (`\w+`)\.", told):
            elsewhere.setdefault(f"As in {other[1]}:", []).append(f"`{each}`")
        else:
            yield line
    yield from (f"- {where} {', '.join(names)}." for where, names in elsewhere.items())
    yield from _outcome(inspect.signature(function), sections)


def _command(function: str) -> tuple[str, dict[str, str]]:
    """A link to the command of a function, and by name the bare texts of its options there."""
    words = _COMMANDS.get(function, function).split()
    command: Any = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        command = getattr(command, "loaded", command)
    if command is None:
        return "", {}
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    anchor = "-".join(["glit", *words, *(each.name for each in arguments)])
    texts = {
        each.opts[-1].strip("-").replace("-", "_"): _bare(getattr(each, "help", None) or "")
        for each in command.params
    }
    return f"[`glit {' '.join(words)}`](cli.md#{anchor})", texts


def _bare(text: str) -> str:
    """A text by its words alone, as an option and an argument share it."""
    return " ".join(re.findall(r"\w+", text.lower()))


def _arguments(function: Any) -> dict[str, str]:
    """By name a line about each argument."""
    told = dict(_entries(_sections(function)[1].get("Args", "")))
    return {
        each.name: f"- `{each.name}`{_kind(each)}: {told.get(each.name, '')}".rstrip(": ")
        for each in inspect.signature(function).parameters.values()
    }


def _outcome(signature: inspect.Signature, sections: dict[str, str]) -> Iterator[str]:
    back = str(signature.return_annotation)
    if back != "None":
        told = " ".join(sections.get("Returns", "").split())
        yield f"- Returns `{back}`{': ' if told else ''}{told}"
    for kind, why in _entries(sections.get("Raises", "")):
        if why := why.removeprefix("with a one-line reason.").strip():
            yield f"- Raises `{kind}`: {why}"


def _kind(each: inspect.Parameter) -> str:
    kind = str(each.annotation)
    for alias, meaning in _ALIASES.items():
        kind = re.sub(rf"\b{alias}\b", meaning, kind)
    default = "" if each.default is each.empty else f" = {each.default!r}"
    return f" (`{kind}{default}`)"


def _class(name: str, kind: Any) -> Iterator[str]:
    about, _ = _sections(kind)
    own = not (kind.__doc__ or "").startswith(f"{kind.__name__}(")
    yield f"\n### `{name}`\n"
    if own:
        yield f"{about}\n"
    docs = field_docs(kind)
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            told = _markdown(docs.get(field.name, ""))
            yield f"- `{field.name}` (`{field.type}`){': ' if told else ''}{told}"
    else:
        for key, (annotation, text) in _attributes(kind).items():
            yield f"- `{key}` (`{annotation}`): {text}"
    for key, each in vars(kind).items():
        if isinstance(each, property | functools.cached_property):
            function = each.fget if isinstance(each, property) else each.func
            if not key.startswith("_") and function is not None:
                back = inspect.signature(function).return_annotation
                yield f"- `{key}` (`{back}`): {_sections(function)[0]}".rstrip(": ")
    for key, each in vars(kind).items():
        listed = key in ("__getitem__",) or not key.startswith("_")
        if listed and inspect.isfunction(each) and each.__doc__:
            yield from _method(key, each)


def _method(name: str, function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    shown = [each for each in signature.parameters.values() if each.name != "self"]
    words = ", ".join(each.name for each in shown)
    about, sections = _sections(function)
    call = f"dataset[{words}]" if name == "__getitem__" else f"{name}({words})"
    raises = " ".join(f"`{k}`: {why}" for k, why in _entries(sections.get("Raises", "")))
    yield (
        f"- `{call}` → `{signature.return_annotation}`: {about}"
        + (f" Raises {raises}" if raises else "")
    )


def _attributes(kind: Any) -> dict[str, tuple[str, str]]:
    """Annotated public attributes that ``__init__`` sets, with the string under each."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for each in body.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            for field, text in zip(each.body, each.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Attribute)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    told = " ".join(str(text.value.value).split()).replace("``", "`")
                    found[field.target.attr] = (ast.unparse(field.annotation), told)
    return found


def _sections(thing: Any) -> tuple[str, dict[str, str]]:
    """The text of a docstring before its first section, and its sections."""
    doc = inspect.getdoc(thing) or ""
    parts = re.split(r"^(Args|Returns|Raises|Yields):\n", doc, flags=re.MULTILINE)
    about = _markdown(parts[0])
    return about, dict(zip(parts[1::2], parts[2::2], strict=True))


def _markdown(text: str) -> str:
    """A docstring's text in Markdown: examples in fences, roles as names."""
    text = re.sub(r":\w+:`~?([\w.]+\.)?(\w+)`", r"`\2`", text).replace("``", "`").strip()
    before, prompt, example = text.partition(">>> ")
    if not prompt:
        return text
    return f"{before.strip()}\n\n```text\n>>> {example}\n```"


def _entries(section: str) -> Iterator[tuple[str, str]]:
    """``name: text`` entries of a section, whose further lines are indented more."""
    for entry in re.split(r"^    (?=\S)", section, flags=re.MULTILINE):
        name, colon, text = entry.partition(":")
        if colon and name.strip():
            yield name.strip(), _markdown(" ".join(text.split()))


def field_docs(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass and of those it builds on."""
    found: dict[str, str] = {}
    for base in reversed([each for each in kind.__mro__ if dataclasses.is_dataclass(each)]):
        found |= _own_field_docs(base)
    return found


def _own_field_docs(kind: type) -> dict[str, str]:
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found
