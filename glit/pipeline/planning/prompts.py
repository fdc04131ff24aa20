"""Read captioners' prompts: for the caption, and for captions of further kinds."""

from __future__ import annotations

from pathlib import Path

from glit.data.captions import LONG
from glit.errors import RecipeError
from glit.recipes.resources import default_prompt
from glit.stages.caption import CaptionConfig


def read_prompt(config: CaptionConfig) -> str:
    """The prompt of the first kind of captions, or of the only one.

    Raises:
        RecipeError: there is none, it cannot be read, or it is empty.
    """
    first = config.kinds[0] if _writes_several(config) else LONG
    return _read(Path(config.prompt) if config.prompt else _prompt_of(first))


def further_prompts(config: CaptionConfig) -> dict[str, str]:
    """Return by kind the prompts of the captions that a model writes after the first: KIND.txt
    beside the recipe's own prompt, or else one of glit's.

    Raises:
        RecipeError: see :func:`read_prompt`.
    """
    if not _writes_several(config):
        return {}
    beside = Path(config.prompt).parent if config.prompt else None
    return {kind: _read(_prompt_of(kind, beside)) for kind in config.kinds[1:]}


def _writes_several(config: CaptionConfig) -> bool:
    return bool(config.kinds) and config.backend != "provided"


def _prompt_of(kind: str, beside: Path | None = None) -> Path:
    shipped = default_prompt() if kind == LONG else default_prompt().with_name(f"{kind}.txt")
    found = [] if beside is None else [beside / f"{kind}.txt"]
    for path in (*found, shipped):
        if path.is_file():
            return path
    where = "caption.prompt names no file" if beside is None else f"{found[0]} is not there"
    raise RecipeError(
        f"[caption] kinds: there is no prompt for {kind!r}; write it as {kind}.txt beside the file "
        f"of caption.prompt ({where})"
    )


def _read(path: Path) -> str:
    try:
        prompt = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"[caption] prompt: {path} cannot be read ({error})") from error
    if not prompt:
        raise RecipeError(f"[caption] prompt: {path} is empty; want what captioners are asked")
    return prompt
