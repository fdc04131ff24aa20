"""Describe how a dataset was built, from its manifest, and what was left out, with examples."""

from __future__ import annotations

from typing import Any

import duckdb

from glit.dataset.card import shown
from glit.dataset.manifest import has_regions, pairs_from_files
from glit.stages import all_reasons, all_steps

_EXAMPLES = 6
"""Of every reason."""
_FROM_FILES = " (1 for a pair of the file, else 0; no cosine)"
_NAMES = {"split": "match", "score": "match"}
"""What the tables of some steps were called in version 1."""


def story(manifest: dict[str, Any]) -> dict[str, Any]:
    """Collect recipe, steps and models of a dataset.

    Args:
        manifest: of a finished dataset, version 1 included.
    """
    recipe, models = manifest["recipe"], manifest["models"]
    steps = []
    for step in all_steps():
        options = recipe.get(step.name) or recipe.get(_NAMES.get(step.name, ""))
        if not step.title or not options or not options.get("enabled", True):
            continue
        model = models.get(step.role, {})
        steps.append(
            {
                "title": step.title,
                "how": shown(options.get(step.shows, ""))
                + (_FROM_FILES if step.name == "score" and pairs_from_files(recipe) else ""),
                "model": model.get("name", ""),
                "revision": model.get("revision", ""),
                "licence": model.get("licence", ""),
            }
        )
    paired = has_regions(manifest)
    calibration = manifest.get("calibration")
    if paired:
        steps.append(
            {
                "title": "Pairs",
                "how": f"rule {_rule(manifest)}",
                "model": "",
                "revision": "calibrated probabilities" if calibration else "no calibration",
                "licence": "",
            }
        )
    steps += [
        {
            "title": "Plugin",
            "how": each.get("name", ""),
            "model": each.get("package", ""),
            "revision": each.get("version", "") or each.get("sha256", "")[:12],
            "licence": "",
        }
        for each in recipe.get("plugins", ())
    ]
    return {
        "recipe": recipe["name"],
        "rule": _rule(manifest) if paired else "",
        "about": recipe.get("about", ""),
        "pairs_from_files": pairs_from_files(recipe),
        "steps": steps,
        "tokenizer": manifest["tokenizer"],
        "min_probability": float(recipe.get("pair", {}).get("min_probability", 0.0)),
        "glit": manifest["glit_version"],
        "schema": manifest["schema_version"],
        "bytes": sum(file["bytes"] for file in manifest["files"].values()),
        "files": len(manifest["files"]),
        "packages": manifest.get("packages", {}),
    }


def _rule(manifest: dict[str, Any]) -> str:
    """The names of the rules; version 1 knew two, by a key of the matcher."""
    if "rules" in manifest:
        rest = {key: value for key, value in manifest.items() if key != "rules"}
        rules = [_rule({**rest, **rule}) for rule in manifest["rules"]]
        return ", ".join(dict.fromkeys(rules))
    if manifest["schema_version"] > 1:
        return str(manifest["recipe"].get("pair", {}).get("rule"))
    return "lism" if manifest["recipe"].get("match", {}).get("global_competes") else "argmax"


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
