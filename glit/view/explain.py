"""Follow one image of a dataset from its file to its pairs, or to the reason for its drop."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from glit.data.records import Pair
from glit.dataset.query import NUMBER, connect, numbered
from glit.dataset.reader import Dataset
from glit.dataset.row import Row, captions_of, is_grounded
from glit.errors import InputError
from glit.images.thumbnails import MAX_BYTES, MAX_SIDE
from glit.plain import as_plain
from glit.stages import all_reasons
from glit.stages.split import SplitConfig, SplitStage
from glit.version import __version__
from glit.view.originals import Originals
from glit.view.report import thumbnail_url
from glit.view.samples import sample
from glit.view.story import story

_NEXT_BEST = 3
"""Other regions that are named for a sentence."""
_SHORTEST_ID = 6


def explain(dataset: Dataset, name: str) -> dict[str, Any]:
    """Collect everything that is known about an image.

    Args:
        dataset: a finished one.
        name: its path in the ingested folder, its ``sample_id``, or the beginning of that.

    Returns:
        JSON; ``outcome`` is ``shipped``, ``dropped`` or ``duplicate``.

    Raises:
        InputError: no image is called that, or several are.
        DatasetError: a file of the dataset cannot be read.
    """
    with connect(dataset) as connection:
        is_id = re.fullmatch(f"[0-9a-f]{{{_SHORTEST_ID},64}}", name) is not None
        where, words = "source_path = $name", {"name": name}
        if is_id:
            where = f"({where} OR starts_with(sample_id, $name))"
        found = connection.execute(
            f"""SELECT {NUMBER}, sample_id, source_path FROM {numbered(dataset)}
                WHERE {where} LIMIT 4""", words,
        ).fetchall()  # fmt: skip
        if len(found) > 1:
            paths = ", ".join(path for _, _, path in found[:3])
            raise InputError(
                f"{name}: several samples begin with it ({paths}, ...); give more characters"
            )
        if found:
            number, sample_id, _ = found[0]
            return _shipped(dataset, number, _copies(connection, sample_id))
        return _not_shipped(connection, dataset, name, where, words)


def _copies(connection: duckdb.DuckDBPyConnection, sample_id: str) -> list[dict[str, str]]:
    """The duplicates that were left out in favour of a sample."""
    rows = connection.execute(
        """SELECT d.source_path, d.kind FROM duplicates d JOIN samples s
           ON d.kept_path = s.source_path WHERE s.sample_id = ? ORDER BY ALL""",
        [sample_id],
    ).fetchall()
    return [{"path": path, "kind": kind} for path, kind in rows]


def _not_shipped(
    connection: duckdb.DuckDBPyConnection,
    dataset: Dataset,
    name: str,
    where: str,
    words: dict[str, str],
) -> dict[str, Any]:
    dropped = connection.execute(
        f"""SELECT sample_id, source_path, stage, reason, message, attempt FROM drops
            WHERE {where} LIMIT 1""", words,
    ).fetchall()  # fmt: skip
    about = _about(dataset)
    if dropped:
        sample_id, path, stage, reason, message, attempt = dropped[0]
        return {
            "outcome": "dropped", "path": path, "sample_id": sample_id, "stage": stage,
            "reason": reason, "meaning": all_reasons().get(reason, ""), "message": message,
            "attempt": attempt, **about,
        }  # fmt: skip
    copy = connection.execute(
        f"SELECT sample_id, source_path, kept_path, kind FROM duplicates WHERE {where} LIMIT 1",
        words,
    ).fetchall()
    if copy:
        sample_id, path, kept, kind = copy[0]
        return {"outcome": "duplicate", "path": path, "sample_id": sample_id, "kept_path": kept,
                "kind": kind, **about}  # fmt: skip
    raise InputError(
        f"{name}: no image of {dataset.path}, neither shipped nor dropped nor a duplicate; want "
        "a path relative to the ingested folder, or a sample_id (glit query lists them)"
    )


def _shipped(dataset: Dataset, number: int, copies: list[dict[str, str]]) -> dict[str, Any]:
    row = dataset[number]
    both = ("phrases", "groundings") if is_grounded(row) else ()
    grounded = {name: row.extra[name] for name in both}
    several = {"captions": found} if (found := captions_of(row)) else {}
    pair_of = {pair.sentence: pair for pair in row.pairs}
    caption = row.caption
    return {
        "outcome": "shipped",
        "path": row.source_path,
        "sample_id": row.sample_id,
        "row": number,
        "width": row.width,
        "height": row.height,
        "bytes": len(row.encoded()),
        "duplicates": copies,
        "extra": {k: v for k, v in row.extra.items() if k not in {*grounded, *several}},
        **grounded,
        **several,
        "caption": {
            "text": caption.text, "kind": caption.kind, "model": caption.model,
            "revision": caption.revision, "prompt_sha256": caption.prompt_sha256,
            "trimmed": caption.trimmed,
        },
        "sentences": [
            {
                "text": s.text, "characters": [s.char_start, s.char_end],
                "tokens": [s.token_start, s.token_end], "in_window": s.in_window,
                "truncated": s.truncated, "mean_logprob": s.mean_logprob,
                "min_logprob": s.min_logprob, **_choice(row, index, pair_of.get(index)),
            }
            for index, s in enumerate(row.sentences)
        ],
        "regions": [
            {"box_xyxy": list(r.box.xyxy), "source": r.source, "label": r.label, "score": r.score}
            for r in row.regions
        ],
        **_about(dataset),
    }  # fmt: skip


def _choice(row: Row, sentence: int, pair: Pair | None) -> dict[str, Any]:
    """Return a sentence's choice, the next best regions, and the numbers that decided."""
    cosines = row.similarity[sentence]
    order = (-cosines).argsort(kind="stable")
    whole = None if row.image_similarity is None else float(row.image_similarity[sentence])
    others = [int(r) for r in order if pair is None or r != pair.region][:_NEXT_BEST]
    return {
        "region": None if pair is None or pair.global_wins else pair.region,
        "best_region": None if pair is None else pair.region,
        "similarity": None if pair is None else pair.similarity,
        "probability": None if pair is None else pair.probability,
        "support": None if pair is None else pair.support,
        "image_similarity": whole,
        "rank_by_cosine": None if pair is None else int((cosines > cosines[pair.region]).sum()) + 1,
        "next_best": [{"region": r, "similarity": float(cosines[r])} for r in others],
    }


def _about(dataset: Dataset) -> dict[str, Any]:
    """Return the facts on the whole dataset: rule, models, fingerprints."""
    manifest, pair = dataset.manifest, dataset.manifest.recipe.table("pair")
    told = story(manifest)
    short = manifest.recipe.table(SplitStage.name).get("short_context", SplitConfig().short_context)
    return {
        "dataset": Path(dataset.path).name,
        "recipe": told["recipe"],
        "rule": told["rule"],
        "pairs_from_files": told["pairs_from_files"],
        "short_context": short,
        "rule_options": pair,
        "min_probability": told["min_probability"],
        "min_support": float(pair.get("min_support", 0.0)),
        "steps": told["steps"],
        "prompt": manifest.prompt,
        "models": as_plain(manifest.models),
        "fingerprints": dict(manifest.fingerprints),
    }


def as_text(found: dict[str, Any]) -> str:
    """Format an explanation for a terminal; numbers count from 1, in JSON and SQL from 0."""
    return "\n".join(_lines(found))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['path']}  {found['sample_id'] or 'no sample_id: it was never read'}"
    if found["outcome"] == "dropped":
        tried = f", after {found['attempt']} more tries" if found["attempt"] else ""
        yield f"dropped by {found['stage']}: {found['reason']} ({found['meaning']}){tried}"
        if found["reason"] != "not_selected":
            yield f"  {found['message']}"
            yield "glit retry tries it again"
        return
    if found["outcome"] == "duplicate":
        same = "the same bytes as" if found["kind"] == "exact" else "looks the same as"
        yield f"left out as a duplicate: {same} {found['kept_path']}, which is in the dataset"
        return
    yield f"row {found['row']}, {found['width']} x {found['height']} px, {found['bytes']:,} bytes"
    for copy in found["duplicates"]:
        yield f"its {copy['kind']} duplicate {copy['path']} was left out"
    for name, value in found["extra"].items():
        yield f"{name}: {value}"
    caption = found["caption"]
    made = " ".join(filter(None, (caption["kind"], caption["model"], caption["revision"][:12])))
    cut = ", cut at the token limit and ended at its last sentence" if caption["trimmed"] else ""
    yield f"\ncaption: {made}{cut}"
    for each in found.get("captions", ()):
        same = "the caption" if each["text"] == caption["text"] else each["text"]
        yield f"  {each['kind']} ({each['source']}): {same}"
    for number, sentence in enumerate(found["sentences"]):
        yield from _sentence_lines(number, sentence, found)
    yield "\nregions" if found["regions"] else "\nno regions: a dataset of captions alone"
    for number, region in enumerate(found["regions"]):
        box = ", ".join(f"{value:.1f}" for value in region["box_xyxy"])
        yield f"  {number + 1}  {_name(region)}  score {region['score']:.2f}  ({box})"
    rule = f", rule {found['rule']}" if found["rule"] else ""
    yield f"\nrecipe {found['recipe']}{rule}"
    for step in found["steps"]:
        yield f"  {step['title']:<11}{step['how']:<22}{step['model']}"
    prints = " ".join(f"{name}-{value}" for name, value in found["fingerprints"].items())
    yield f"fingerprints: {prints}"


def _sentence_lines(number: int, sentence: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    start, end = sentence["tokens"]
    notes = [f"tokens {start} to {end}"]
    if not sentence["in_window"]:
        notes.append("leaves the text window")
    if sentence["truncated"]:
        notes.append(
            f"cut when it was compared: longer than {found['short_context']} tokens by itself"
        )
    yield f"\n  {number + 1}  {sentence['text']}"
    if sentence["min_logprob"] is not None:
        least = math.exp(sentence["min_logprob"])
        notes.append(f"the captioner gave its least sure token {least:.0%}")
    yield f"     {', '.join(notes)}"
    if found["regions"]:
        yield f"     {why(sentence, found)}"
    yield from _phrase_lines(number, found)


def _phrase_lines(sentence: int, found: dict[str, Any]) -> Iterator[str]:
    """The phrases of a sentence, and the regions where the grounder found each."""
    groundings = found.get("groundings", ())
    for number, phrase in enumerate(found.get("phrases", ())):
        if phrase["sentence"] == sentence:
            seen = [
                f"region {each['region'] + 1} ({each['score']:.2f})"
                for each in groundings
                if each["phrase"] == number
            ]
            yield f"     {phrase['text']!r}: {', '.join(seen) or 'not found'}"


def why(sentence: dict[str, Any], found: dict[str, Any]) -> str:
    """Return a line with the choice for a sentence, and the reason."""
    if sentence["best_region"] is None:
        return "no pair"
    best = sentence["best_region"]
    named = f"region {best + 1} ({_name(found['regions'][best])})"
    if found["pairs_from_files"]:
        none = sentence["region"] is None
        return "no region: its file names none" if none else f"-> {named}, named by its file"
    likely = sentence["probability"]
    numbers = f"cosine {sentence['similarity']:.3f}"
    numbers += f", probability {likely:.2f}" if likely is not None else ""
    true = sentence["support"]
    numbers += f", support {true:.2f}" if true is not None else ""
    whole = sentence["image_similarity"]
    if sentence["region"] is None:
        if likely is not None and likely < found["min_probability"]:
            because = f"less probable than pair.min_probability, {found['min_probability']:g}"
        elif true is not None and true < found["min_support"]:
            because = f"less support than pair.min_support, {found['min_support']:g}"
        else:
            because = "the whole image matches it at least as well"
            because += f": {whole:.3f}" if whole is not None else ""
        return f"no region: the best is {named}, {numbers}; {because}"
    rank = sentence["rank_by_cosine"]
    place = "highest cosine of all regions" if rank == 1 else f"by cosine alone it is number {rank}"
    return f"-> {named}, {numbers}; {place}"


def _name(region: dict[str, Any]) -> str:
    label = region["label"]
    return (
        f"{region['source']} {label!r}" if label and label != region["source"] else region["source"]
    )


def explain_page(dataset: Dataset, found: dict[str, Any]) -> dict[str, Any]:
    """The data of one image's page, as JSON."""
    page = {"kind": "explain", "glit": __version__, "name": found["path"], "found": found}
    if found["outcome"] == "shipped":
        row = dataset[found["row"]]
        page["sample"] = sample(row, number=found["row"], image=thumbnail_url(row))
        page["why"] = [why(sentence, found) for sentence in found["sentences"]]
    else:
        page["image"] = Originals.of(dataset.path, dataset.image_root).picture(
            found["path"], found["sample_id"] or "", max_side=MAX_SIDE, max_bytes=MAX_BYTES
        )
    return page
