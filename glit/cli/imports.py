"""``import`` and ``import-model``."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from glit.cli.derived import command
from glit.cli.options import progress_bar
from glit.inputs.published import imported
from glit.runtime.terminal import one_line
from glit.storage.outputs import local_file, local_folder


@command
def import_command(
    *,
    annotations: Annotated[Path, typer.Argument()],
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(imported())}.")],
    output: str,
    images: Path | None = None,
    split: str | None = None,
    attach: bool = False,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Convert published captions to a file for glit build --captions. Lists missing images.

    Boxes published with them, and boxes of annotation tools, go to OUT.regions.jsonl, for
    --regions.

    Args:
        annotations: the annotations, a file or folder as published.
        output: the .jsonl file to write.
        images: the image folder.
        split: parts, joined by +. Default: all.
        attach: look for images by name anywhere below the image folder.
    """
    from glit.data.frames import CHANGES
    from glit.inputs.importers import import_captions, regions_file

    path = local_file(output)
    with progress_bar(quiet=quiet) as progress:
        found = import_captions(
            form, annotations, path, images=images, split=split, attach=attach, progress=progress
        )
    has_captions = found.regions is None or found.captions > 0
    if as_json:
        files = {"captions_file": str(path)} if has_captions else {}
        if found.regions is not None:
            files["regions_file"] = str(regions_file(path))
        print(json.dumps({**files, **asdict(found)}, default=str))
        return
    what = f"images with captions of the kinds {', '.join(found.kinds)}" if found.kinds else ""
    if has_captions:
        print(f"{found.captions} {what or 'captions'}: {path}")
    if found.regions is not None:
        edge = f", {found.cut} cut at the edge of their image" if found.cut else ""
        left = f", {found.empty} empty ones left out" if found.empty else ""
        left += f", {found.repeated} equal ones left out" if found.repeated else ""
        masks = f", {found.masks} with a mask" if found.masks else ""
        of = "" if has_captions else f" of {found.boxed} images"
        print(f"{found.regions} boxes{of}: {regions_file(path)}{masks}{edge}{left}")
    if found.elsewhere:
        print(f"{found.elsewhere} of their images were found by name, in another place")
    for count, how in ((found.scaled, "scaled"), (found.turned, "turned")):
        if count:
            print(f"boxes of {count} image{'s' * (count > 1)} were {how}: {CHANGES[how]}")
    if found.without:
        images_have = "1 image has" if found.without == 1 else f"{found.without} images have"
        boxless = " or no box" if has_captions and found.regions is not None else ""
        print(f"{images_have} no {'caption' if has_captions else 'box'}{boxless}")
    if found.regions is not None:
        texts = ["-r", "provided", "--captions", str(path)] if has_captions else ["-r", "laptop"]
        words = [
            "glit", "build", found.folder, "-o", f"{path.stem}-dataset", *texts,
            "--regions", str(regions_file(path)),
            *(["--set", "ground.enabled=true"] if found.phrases else []),
            *(["--set", "propose.keep_masks=true"] if found.masks else []),
        ]  # fmt: skip
        print(f"next: {shlex.join(words)}")
    for fault in found.refused:
        print(one_line(f"left out: {fault}"), file=sys.stderr)
    if found.refused:
        listed = (
            "listed above" if found.num_refused == len(found.refused) else "the first are above"
        )
        print(f"{found.num_refused} left out; {listed}", file=sys.stderr)
    for name in found.missing:
        print(one_line(f"missing: {name}"), file=sys.stderr)
    if found.missing:
        number = found.num_missing
        images_are = "1 image is" if number == 1 else f"{number} images are"
        listed = "listed above" if number == len(found.missing) else "the first are above"
        print(f"{images_are} missing; {listed}", file=sys.stderr)


@command
def import_model_command(
    *,
    checkpoint: Annotated[Path, typer.Argument()],
    output: str,
    like: str = "",
    activation: Literal["quick_gelu", "gelu"] | None = None,
) -> None:
    """Convert a published checkpoint of a CLIP, such as Long-CLIP's, or of SAM.

    Writes a folder for glit train, eval and build. Runs no code in the file.

    Args:
        checkpoint: a published file of weights (.pt, .bin, .safetensors), or FG-CLIP's folder.
        output: the folder to write.
        like: the CLIP it was fine-tuned from: a name, a folder, a hub id. Default: the checkpoint's
            own folder, else clip-vit-b-16.
        activation: activation of the model, which no file of weights says. Default: that of
            ``like``.
    """
    from glit.models.importers.model import import_model
    from glit.runtime.process_state import without_bars

    folder = local_folder(output)
    with without_bars():
        made = import_model(checkpoint, folder, like=like, activation=activation)
    texts = f"a window of {made.context} tokens, activation {made.activation}, "
    print(
        f"{made.parameters:,} parameters, {texts if made.context else ''}"
        f"SHA-256 of the file {made.sha256}: {folder}"
    )
