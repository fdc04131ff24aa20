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
from glit.cli.options import DatasetArgument, JsonOption, QuietOption, SetOption, progress_bar
from glit.errors import UserError
from glit.runtime.terminal import Console, visible
from glit.storage.outputs import local_file, local_folder


def pair_command(
    dataset: DatasetArgument,
    output: Annotated[str, typer.Option("-o", "--output", help="The folder to write.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--recipe",
            help="The recipe whose table pair is used. Default: the dataset's own.",
        ),
    ] = None,
    settings: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the dataset with the pairs of another rule. Needs no model and no pixels."""
    from glit.runtime.cores import usable_cores

    folder = local_folder(output)
    with progress_bar(quiet=quiet) as progress:
        paired = api.pair(
            dataset, folder, recipe=recipe, settings=settings or (),
            processes=usable_cores(), progress=progress,
        )  # fmt: skip
    written = {"dataset": str(folder), "samples": len(paired)}
    print(json.dumps(written) if as_json else f"{len(paired)} images: {folder}")


def select_command(
    dataset: DatasetArgument,
    output: Annotated[str, typer.Option("-o", "--output", help="The folder to write.")],
    where: Annotated[
        str, typer.Option("--where", help="Take only samples that meet this SQL condition.")
    ] = "",
    sample: Annotated[
        int | None,
        typer.Option("--sample", min=1, help="Take at most N samples, chosen reproducibly."),
    ] = None,
    by: Annotated[
        str,
        typer.Option("--by", help="With --sample: as many of each value of this column or SQL."),
    ] = "",
    split: Annotated[
        str | None,
        typer.Option("--split", help="Write parts into folders: train=0.98,val=0.02."),
    ] = None,
    together: Annotated[
        str,
        typer.Option(
            "--together", help="Keep samples with the same value of this SQL in one part."
        ),
    ] = "",
    near: Annotated[
        int | None,
        typer.Option(
            "--near",
            help="Keep look-alike images in one part: their perceptual hashes differ in at most N "
            "of 64 bits, 0 to 7. Decodes all images.",
        ),
    ] = None,
    distinct: Annotated[
        float | None,
        typer.Option(
            "--distinct",
            help="Of images whose embeddings have this cosine or more, keep the best one.",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", help="The model for --distinct: a name, a folder or a run.")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", help="Seed of --sample and --split.")] = 0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write some samples as a new dataset, or divide them into parts. Without --distinct it needs
    no model."""
    folder, shares = local_folder(output), None if split is None else _shares(split)
    if shares is None and together:
        raise UserError(f"--together {together}: is for --split; add --split train=0.98,val=0.02")
    if shares is None and near is not None:
        raise UserError(f"--near {near}: is for --split; add --split train=0.98,val=0.02")
    rest: Any = {"where": where, "sample": sample, "by": by, "seed": seed}
    rest |= {"distinct": distinct, "model": model}
    with progress_bar(quiet=quiet) as progress:
        if shares is None:
            parts = {"": api.select(dataset, folder, **rest, progress=progress)}
        else:
            parts = api.split(
                dataset, folder, shares, together=together, near=near, **rest, progress=progress
            )  # fmt: skip
    if as_json:
        written = {
            name: {
                "dataset": str(folder / name),
                "samples": len(part),
                "duplicates": part.manifest.counts.duplicates,
            }
            for name, part in parts.items()
        }
        print(json.dumps(written if shares else written[""]))
        return
    for name, part in parts.items():
        repeats = part.manifest.counts.duplicates
        told = "" if distinct is None else f" ({repeats} near-duplicates left out)"
        print(f"{len(part)} images{told}: {folder / name}")
    ingest = next(iter(parts.values())).manifest.recipe.table("ingest")
    is_grouped = together or near is not None or distinct is not None
    if shares and not is_grouped and ingest.get("near_duplicates", -1) < 0:
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


def merge_command(
    datasets: Annotated[list[str], typer.Argument(help="Folders or addresses of datasets.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The folder to write.")],
    quiet: QuietOption = False,
    as_json: JsonOption = False,
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


def overlap_command(
    dataset: Annotated[
        str,
        typer.Argument(help="The dataset's folder or address; with -o, what to compare with."),
    ],
    references: Annotated[
        str | None,
        typer.Argument(
            help="What to compare with: images as glit build takes them, the images of "
            "annotations (docci:PATH; formats of glit eval), a file .sha256 of hashes, or a "
            "list that -o wrote."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="Write a list of the images (.parquet) instead, for the stage exclude and for "
            "glit overlap. Lists unusable files.",
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Also compare embeddings of this model, the list's; with -o, store them.",
        ),
    ] = "",
    cosine: Annotated[
        float | None,
        typer.Option("--cosine", help="Smallest cosine of embeddings that counts. Default: 0.95."),
    ] = None,
    page: Annotated[
        str | None, typer.Option("--page", help="The HTML file to write, both images side by side.")
    ] = None,
    images: Annotated[
        str,
        typer.Option(
            "--images", help="The folder of the list's images, for the page or annotations."
        ),
    ] = "",
    split: Annotated[
        str,
        typer.Option("--split", help="Parts of the annotations, joined by +. Default: test."),
    ] = "",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find a dataset's images that resemble one of a test set; exit code 1 if any do.

    ``glit overlap IMAGES -o LIST.parquet`` writes a list of a test set's images, to keep them out
    of training data.
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
