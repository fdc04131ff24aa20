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
from glit.cli.options import DatasetArgument, JsonOption, QuietOption, SetOption
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
    overrides: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the dataset with the pairs of another rule. Needs no model and no pixels."""
    from glit.runtime.cores import usable_cores
    from glit.runtime.progress import StageProgress

    folder = local_folder(output)
    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet) as progress:
        paired = api.pair(
            dataset, folder, recipe=recipe, settings=overrides or (),
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
    from glit.runtime.progress import StageProgress

    folder, shares = local_folder(output), None if split is None else _shares(split)
    if shares is None and together:
        raise UserError(f"--together {together}: is for --split; add --split train=0.98,val=0.02")
    if shares is None and near is not None:
        raise UserError(f"--near {near}: is for --split; add --split train=0.98,val=0.02")
    rest: Any = {"where": where, "sample": sample, "by": by, "seed": seed}
    rest |= {"distinct": distinct, "model": model}
    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet) as progress:
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
    from glit.runtime.progress import StageProgress

    folder = local_folder(output)
    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet) as progress:
        merged = api.merge(datasets, folder, progress=progress)
    repeated = merged.manifest.counts.duplicates
    written = {"dataset": str(folder), "samples": len(merged), "duplicates": repeated}
    print(
        json.dumps(written) if as_json else f"{len(merged)} images ({repeated} repeated): {folder}"
    )


def references_command(
    images: Annotated[
        str,
        typer.Argument(
            help="Images as glit build takes them, the images of annotations (docci:PATH; formats "
            "of glit eval), or a file .sha256 of hashes."
        ),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="The .parquet file to write.")],
    model: Annotated[
        str,
        typer.Option(
            "--model", help="Also store embeddings of this model: a name, a folder or a run."
        ),
    ] = "",
    folder: Annotated[
        str, typer.Option("--images", help="The folder of the annotations' images.")
    ] = "",
    split: Annotated[
        str,
        typer.Option("--split", help="Parts of the annotations, joined by +. Default: test."),
    ] = "",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fingerprint your test images, to keep them out of training data. Lists unusable files."""
    from glit.runtime.progress import StageProgress

    path = local_file(output)
    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet) as progress:
        written = api.references(
            images, path, model=model, folder=folder, split=split, progress=progress
        )
    for name, reason in written.unusable.items():
        print(visible(f"left out: {name}: {reason}"), file=sys.stderr)
    found = {"file": str(path), "images": written.num_images, "unusable": written.unusable}
    print(json.dumps(found) if as_json else f"{written.num_images} images: {path}")


def overlap_command(
    dataset: DatasetArgument,
    references: Annotated[
        str,
        typer.Argument(help="A file that glit references wrote, or what glit references takes."),
    ],
    model: Annotated[
        str, typer.Option("--model", help="Also compare embeddings of this model, the list's.")
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
    """List images of a dataset that are in a list or resemble one; exit code 1 if any are."""
    from glit.runtime.progress import StageProgress

    with StageProgress(Console(stderr=True, highlight=False), quiet=quiet or as_json) as progress:
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


def diff_command(
    dataset: DatasetArgument,
    other: Annotated[str, typer.Argument(help="Another dataset's folder or address.")],
    as_json: JsonOption = False,
) -> None:
    """Tell what differs between two datasets; exit code 1 if anything does. glit view shows it."""
    found = api.diff(dataset, other)
    if as_json:
        print(json.dumps(found))
    else:
        for key, (first, second) in found["settings"].items():
            alone = "first" if second is None else "second"
            is_table = "." not in key
            told = f"only in the {alone}" if is_table else f"{first} | {second}"
            print(visible(f"{key}: {told}"))
        images = found["images"]
        print(
            f"{images['both']} images in both, {images['only_a']} in the first alone, "
            f"{images['only_b']} in the second alone"
        )
        kinds = {kind: number for kind, number in found["sentences"].items() if number}
        told = ", ".join(f"{number} {_KINDS[kind]}" for kind, number in kinds.items())
        print(f"sentences of {found['compared']} images: {told or 'none'}")
    if not found["same"]:
        raise typer.Exit(1)


_KINDS = {
    "same": "with the same region",
    "other": "with another",
    "only_a": "with one in the first alone",
    "only_b": "with one in the second alone",
    "neither": "without a region in both",
    "reworded": "not in both",
}
