"""Load transformers models completely or raise an error."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from glit.errors import GlitError, WeightsError, first_line
from glit.models.files import weight_files
from glit.models.weights import Resolved
from glit.runtime.gpu_errors import is_out_of_memory, ruins_process

_WITHOUT_EFFECT = re.compile(r"position_ids$|rotary_emb\.inv_freq$|num_batches_tracked$")
"""Names of buffers that older versions saved, and that are computed or counted."""


@contextlib.contextmanager
def as_weights_error(what: str) -> Iterator[None]:
    """Turn any error of transformers about a model's folder into a WeightsError.

    transformers does not check most keys, so a missing key or a value of the wrong type may raise
    an exception of any class.

    Args:
        what: the beginning of the message: what cannot be loaded.

    Raises:
        WeightsError: with the first line of that error.
    """
    try:
        yield
    except (GlitError, ModuleNotFoundError):  # the command line names the extra of a package
        raise
    except Exception as error:
        if ruins_process(error) or is_out_of_memory(error):
            raise
        raise WeightsError(f"{what} ({first_line(error)})") from error


def load_whole(kind: Any, folder: str | Path, **options: Any) -> Any:
    """Call ``kind.from_pretrained``; raise an error unless the files hold the model's weights,
    all of them and no others.

    transformers draws those that the files lack at random, leaves out those that the class does
    not know, and goes on; what the model answers then looks like a result.

    Args:
        kind: a class of transformers.
        folder: of the model.
        options: of ``from_pretrained``.

    Raises:
        WeightsError: weights are missing, or the class does not know them.
    """
    with _without_report():
        model, loaded = kind.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    _fill_scalars(model, Path(folder), loaded.get("mismatched_keys", ()))
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise WeightsError(
            f"{folder}: {len(missing)} weights of a {type(model).__name__} are not in its files "
            f"(first: {missing[0]}); download it again, or convert it to that kind"
        )
    unknown = [name for name in loaded["unexpected_keys"] if not _WITHOUT_EFFECT.search(name)]
    if unknown:
        fg_clip = "text_filip_projection.weight" in unknown
        more = ", or make one of FG-CLIP's weights with glit import-model" if fg_clip else ""
        raise WeightsError(
            f"{folder}: a {type(model).__name__} has no place for {len(unknown)} weights of its "
            f"files (first: {min(unknown)}), so it would answer otherwise than the model they are "
            f"of; give a checkpoint of that kind{more}"
        )
    return model


@contextlib.contextmanager
def _without_report() -> Iterator[None]:
    """Keep transformers from printing the names that :func:`load_whole` puts into its errors."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _fill_scalars(model: Any, folder: Path, others: Iterable[tuple[str, Any, Any]]) -> None:
    """Read numbers that the files hold as lists of one, or the other way round, such as scales.

    Args:
        model: was loaded without them.
        folder: of its files.
        others: the names whose shapes differ, with the shape in the files and that of the model.

    Raises:
        WeightsError: other shapes differ.
    """
    import torch
    from safetensors import safe_open

    for name, found, wanted in others:
        if math.prod(found) != 1 or math.prod(wanted) != 1:
            raise WeightsError(
                f"{folder}: {name} has the shape {list(found)}, a {type(model).__name__} of its "
                f"config.json wants {list(wanted)}; download it again, or mend its config.json"
            )
        value = None
        for file in weight_files(folder):
            if file.suffix == ".safetensors":
                with safe_open(file, framework="pt") as weights:
                    value = weights.get_tensor(name) if name in [*weights.keys()] else value
        if value is None:
            raise WeightsError(f"{folder}: {name} is in a pickle and has the shape {list(found)}")
        with torch.no_grad():
            model.get_parameter(name).copy_(value.reshape(tuple(wanted)))


def load_with_processor(
    processor: Any, kind: Any, model: Resolved, *, name: str, dtype: Any
) -> tuple[Any, Any]:
    """The processor and the model of a folder.

    Args:
        processor: a class of transformers.
        kind: a class of transformers.
        model: the folder.
        name: of such models, for the message.
        dtype: of the weights.

    Raises:
        WeightsError: they cannot be loaded.
    """
    with as_weights_error(f"model {model.name!r}: cannot be loaded as {name}"):
        made = processor.from_pretrained(str(model.path), local_files_only=True)
        return made, load_whole(kind, model.path, local_files_only=True, dtype=dtype)
