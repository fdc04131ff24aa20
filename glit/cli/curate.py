"""``glit pair``, ``select``, ``merge``, ``references``, ``overlap`` and
``diff``: datasets made of others, and compared."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from glit import api
from glit.cli.derived import command_of
from glit.cli.options import progress_bar
from glit.errors import UserError
from glit.runtime.terminal import Console, visible
from glit.storage.outputs import local_file, local_folder


@command_of(api.pair, without=["processes"])
def pair_command(
    *, dataset: str, output: str, quiet: bool = False, as_json: bool = False, **given: Any
) -> None:
    """Write the dataset with the pairs of another rule. Needs no model and no pixels."""
    from glit.runtime.cores import usable_cores

    folder = local_folder(output)
    with progress_bar(quiet=quiet) as progress:
        paired = api.pair(dataset, folder, processes=usable_cores(), progress=progress, **given)
    written = {"dataset": str(folder), "samples": len(paired)}
    print(json.dumps(written) if as_json else f"{len(paired)} images: {folder}")


@command_of(api.split)
def select_command(
    *,
    dataset: str,
    output: str,
    sample: Annotated[int | None, typer.Option(min=1)],
    shares: Annotated[str | None, typer.Option("--split")] = None,
    together: str,
    near: int | None,
    distinct: float | None,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Write some samples as a new dataset, or divide them into parts. Without --distinct it needs
    no model.

    Args:
        shares: write parts into folders: train=0.98,val=0.02.
    """
    folder, parted = local_folder(output), None if shares is None else _shares(shares)
    if parted is None and together:
        raise UserError(f"--together {together}: is for --split; add --split train=0.98,val=0.02")
    if parted is None and near is not None:
        raise UserError(f"--near {near}: is for --split; add --split train=0.98,val=0.02")
    given |= {"sample": sample, "distinct": distinct}
    with progress_bar(quiet=quiet) as progress:
        if parted is None:
            parts = {"": api.select(dataset, folder, progress=progress, **given)}
        else:
            parts = api.split(
                dataset, folder, parted, together=together, near=near, progress=progress, **given
            )
    if as_json:
        written = {
            name: {
                "dataset": str(folder / name),
                "samples": len(part),
                "duplicates": part.manifest.counts.duplicates,
            }
            for name, part in parts.items()
        }
        print(json.dumps(written if parted else written[""]))
        return
    for name, part in parts.items():
        repeats = part.manifest.counts.duplicates
        told = "" if distinct is None else f" ({repeats} near-duplicates left out)"
        print(f"{len(part)} images{told}: {folder / name}")
    ingest = next(iter(parts.values())).manifest.recipe.table("ingest")
    is_grouped = together or near is not None or distinct is not None
    if parted and not is_grouped and ingest.get("near_duplicates", -1) < 0:
        print(
            f"{dataset} was built without ingest.near_duplicates: images that look the same may be "
            "in different parts; --near 6 keeps them in one"
        )


def _shares(text: str) -> dict[str, float]:
    """The parts of ``train=0.98,val=0.02``.

    Raises:
        UserError: it does not name shares, or names one twice.
    """
    found: dict[str, float] = {}
    for word in text.split(","):
        name, _, share = word.strip().partition("=")
        try:
            if name in found:
                raise ValueError
            found[name] = float(share)
        except ValueError as error:
            raise UserError(
                f"--split {text}: found {word!r}; want NAME=SHARE for each part, as "
                "train=0.98,val=0.02"
            ) from error
    return found


@command_of(api.merge)
def merge_command(
    *, datasets: list[str], output: str, quiet: bool = False, as_json: bool = False
) -> None:
    """Write the samples of several datasets as one. A repeated image is taken once."""
    folder = local_folder(output)
    with progress_bar(quiet=quiet) as progress:
        merged = api.merge(datasets, folder, progress=progress)
    repeated = merged.manifest.counts.duplicates
    written = {"dataset": str(folder), "samples": len(merged), "duplicates": repeated}
    print(
        json.dumps(written) if as_json else f"{len(merged)} images ({repeated} repeated): {folder}"
    )


@command_of(api.overlap)
def overlap_command(
    *,
    dataset: Annotated[str, typer.Argument()],
    references: Annotated[str | None, typer.Argument()] = None,
    output: str | None = None,
    model: str,
    cosine: float | None,
    page: str | None,
    images: str,
    split: str,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Find a dataset's images that resemble one of a test set; exit code 1 if any do.

    ``glit overlap IMAGES -o LIST.parquet`` writes a list of a test set's images, to keep them out
    of training data.

    Args:
        dataset: the dataset's folder or address; with ``output``, what to compare with.
        references: what to compare with: images as :func:`build` takes them, the images of
            annotations (docci:PATH; formats of :func:`evaluate`), a file .sha256 of hashes, or a
            list that ``output`` wrote.
        output: write a list of the images (.parquet) instead, for the stage exclude and for
            :func:`overlap`. Lists unusable files.
        model: also compare embeddings of this model, the list's; with ``output``, store them.
    """
    if (references is None) == (output is None):
        raise UserError(
            "glit overlap: want either DATASET and what to compare it with, or IMAGES and "
            "-o LIST.parquet"
        )
    if references is None:
        if cosine is not None or page is not None:
            raise UserError("-o LIST.parquet: compares nothing; leave out --cosine and --page")
        _write_list(dataset, output or "", model, images, split, quiet=quiet, as_json=as_json)
        return
    with progress_bar(quiet=quiet or as_json) as progress:
        found = api.overlap(
            dataset, references, model=model, cosine=cosine, page=page, images=images,
            split=split, progress=progress,
        )  # fmt: skip
    if as_json:
        print(json.dumps([asdict(each) for each in found]))
    elif found:
        table = Table("image", "in the list", "", "correlation")
        for each in found:
            other = each.found
            names = visible(each.source_path), visible(other.name)
            table.add_row(*names, other.kind, other.likeness)
        Console(highlight=False).print(table)
    if not as_json:
        print(f"images of the dataset that are in {references}: {len(found)}")
        if page is not None:
            print(local_file(page).resolve().as_uri())
    if found:
        raise typer.Exit(1)


def _write_list(
    images: str, output: str, model: str, folder: str, split: str, *, quiet: bool, as_json: bool
) -> None:
    path = local_file(output)
    with progress_bar(quiet=quiet) as progress:
        written = api.references(
            images, path, model=model, folder=folder, split=split, progress=progress
        )
    for name, reason in written.unusable.items():
        print(visible(f"left out: {name}: {reason}"), file=sys.stderr)
    found = {"file": str(path), "images": written.num_images, "unusable": written.unusable}
    print(json.dumps(found) if as_json else f"{written.num_images} images: {path}")
