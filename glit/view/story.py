"""Describe how a dataset was built, from its manifest, and what was left out, with examples."""

from __future__ import annotations

from typing import Any

import duckdb

from glit.dataset.card import by_people, corrected, shown
from glit.dataset.manifest import Manifest
from glit.plain import as_plain
from glit.stages import all_reasons, all_steps

_EXAMPLES = 6
"""Examples of every reason."""
_FROM_FILES = " (1 for a pair of the file, else 0; no cosine)"


def story(manifest: Manifest) -> dict[str, Any]:
    """Collect recipe, steps and models of a dataset.

    Args:
        manifest: of a finished dataset.
    """
    recipe, models = manifest.recipe, manifest.models
    steps = []
    for step in all_steps():
        options = recipe.table(step.name)
        if not step.title or not options or not options.get("enabled", True):
            continue
        how = shown(options.get(step.shows, ""))
        if step.name == "score" and recipe.pairs_from_files:
            how += _FROM_FILES
        if model := models.get(step.role):
            steps.append(
                _step(step.title, how, model.name, revision=model.revision, licence=model.licence)
            )
        else:
            steps.append(_step(step.title, how))
    rules = [rule.name for rule in manifest.all_rules]
    rule = ", ".join(dict.fromkeys(rules))
    if rules:
        calibrated = "calibrated probabilities" if manifest.calibration else "no calibration"
        steps.append(_step("Pairs", f"rule {rule}", revision=calibrated))
    for each in manifest.corrections:
        how = f"{each.more.get('samples')} of {each.rows} samples: {corrected(each)}"
        steps.append(_step("Corrected by hand" if by_people(each) else "Repaired", how))
    for each in manifest.certificates:
        steps.append(
            _step("Certified", each.claim, revision=f"verdicts of {', '.join(each.judges)}")
        )
    for each in recipe.plugins:
        version = each.get("version", "") or each.get("sha256", "")[:12]
        steps.append(
            _step("Plugin", each.get("name", ""), model=each.get("package", ""), revision=version)
        )
    return {
        "recipe": recipe.name,
        "rule": rule,
        "about": recipe.about,
        "pairs_from_files": recipe.pairs_from_files,
        "steps": steps,
        "tokenizer": as_plain(manifest.tokenizer),
        "min_probability": float(recipe.table("pair").get("min_probability", 0.0)),
        "glit": manifest.glit_version,
        "schema": manifest.schema_version,
        "bytes": sum(file.bytes for file in manifest.files.values()),
        "files": len(manifest.files),
        "packages": dict(manifest.packages),
    }


def _step(
    title: str, how: str, model: str = "", *, revision: str = "", licence: str = ""
) -> dict[str, str]:
    return {"title": title, "how": how, "model": model, "revision": revision, "licence": licence}


def left_out(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Collect drops by stage and reason, and duplicates by kind, with examples."""
    drops = connection.execute(
        f"""SELECT stage, reason, count(*) AS number,
                   list({{'path': source_path, 'message': message}} ORDER BY source_path)
                       [:{_EXAMPLES}] AS examples
            FROM drops GROUP BY stage, reason ORDER BY number DESC, stage, reason"""
    ).fetchall()
    duplicates = connection.execute(
        f"""SELECT kind, count(*) AS number,
                   list({{'path': source_path, 'message': kept_path}} ORDER BY source_path)
                       [:{_EXAMPLES}] AS examples
            FROM duplicates GROUP BY kind ORDER BY kind"""
    ).fetchall()
    meanings = all_reasons()
    return {
        "drops": [
            {"stage": stage, "reason": reason, "meaning": meanings.get(reason, ""),
             "number": number, "examples": examples}
            for stage, reason, number, examples in drops
        ],
        "duplicates": [
            {"kind": kind, "number": number, "examples": examples}
            for kind, number, examples in duplicates
        ],
    }  # fmt: skip
