"""``glit build``, ``glit add``, ``glit retry`` and ``glit lock``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glit import api
from glit.cli.derived import command, command_of
from glit.cli.options import existing, existing_images, name_next, page_of
from glit.errors import UserError
from glit.pipeline.executors import ExecutorChoice
from glit.plain import as_plain
from glit.runtime.listeners import json_lines, prometheus
from glit.runtime.progress import StageProgress, duration
from glit.runtime.terminal import Console
from glit.storage.outputs import output_folder

if TYPE_CHECKING:
    from glit.dataset.manifest import Manifest
    from glit.pipeline.add import Added


@command_of(api.build)
def build_command(
    *,
    images: Annotated[str, typer.Argument(callback=existing_images)],
    output: str,
    recipe: str | None = None,
    captions: Annotated[str | None, typer.Option(callback=existing)],
    regions: Annotated[str | None, typer.Option(callback=existing)],
    executor: ExecutorChoice,
    ray_address: str | None,
    log_json: str | None = None,
    metrics: str | None = None,
    offline: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Build a dataset from images. Run the same command again to resume.

    Args:
        recipe: a built-in recipe or a TOML file. Default: provided with ``captions`` and
            ``regions``; else flism (with ``captions``: captions) if this machine has a GPU and the
            weights, else mini.
    """
    folder = output_folder(output)
    console = Console(stderr=as_json, highlight=False)
    both = captions is not None and regions is not None
    name = recipe or ("provided" if both else default_recipe(captions is not None))
    if recipe is None and name == "mini":
        _refuse_photographs(images, has_captions=captions is not None)
        console.print("No GPU with the weights found: using the recipe 'mini', for drawn scenes.")
    how = _at_work(executor, ray_address, console, log_json, metrics, quiet=quiet)
    dataset = api.build(
        images, folder, recipe=name, captions=captions, regions=regions, **how, **given
    )
    _report(dataset.manifest, folder, how["progress"], console, as_json=as_json, quiet=quiet)


@command_of(api.add)
def add_command(
    *,
    dataset: str,
    executor: ExecutorChoice,
    ray_address: str | None,
    log_json: str | None = None,
    metrics: str | None = None,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Add new images without redoing the old ones. Run the same command again to resume."""
    folder = output_folder(dataset)
    console = Console(stderr=as_json, highlight=False)

    how = _at_work(executor, ray_address, console, log_json, metrics, quiet=quiet)

    def report(added: Added) -> None:
        counts, new = added.manifest.counts, added.balance
        if as_json:
            plain = {"counts": as_plain(counts), "added": as_plain(new)}
            print(json.dumps({"dataset": folder, **plain}))
        elif new is None:
            console.print(f"{folder}: no new images in {added.images}", soft_wrap=True)
        else:
            console.print(f"added: {new}", soft_wrap=True)
            _report(added.manifest, folder, how["progress"], console, as_json=False, quiet=quiet)

    api.add(folder, report=report, **how, **given)


@command_of(api.retry)
def retry_command(
    *,
    dataset: str,
    executor: ExecutorChoice,
    ray_address: str | None,
    log_json: str | None = None,
    metrics: str | None = None,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Process the dropped samples again and merge the ones that succeed."""
    folder = output_folder(dataset)
    console = Console(stderr=as_json, highlight=False)
    how = _at_work(executor, ray_address, console, log_json, metrics, quiet=quiet)
    retried = api.retry(folder, **how, **given)
    _report(retried.manifest, folder, how["progress"], console, as_json=as_json, quiet=quiet)


def _at_work(
    executor: ExecutorChoice,
    address: str | None,
    console: Console,
    log_json: str | None,
    metrics: str | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Return where to run, and who is told. A command owns its process, so stages that run in it
    may keep the memory that they free."""
    if executor != "ray":
        from glit.pipeline.executors.process import keep_freed_memory

        keep_freed_memory()
    listeners = [
        *([] if log_json is None else [json_lines(log_json)]),
        *([] if metrics is None else [prometheus(metrics)]),
    ]
    progress = StageProgress(console, quiet=quiet, listeners=listeners)
    return {"executor": executor, "ray_address": address, "progress": progress}


@command
def trust_command(*, recipe: Annotated[str, typer.Argument(show_default=False)]) -> None:
    """Confirm a recipe file that asks for what may do harm: pickles, keys, a machine, other files.

    It says what the file asks for. When the file or one that it is based on changes, it has to be
    confirmed again.

    Args:
        recipe: a recipe file (TOML).
    """
    from glit.recipes import trust
    from glit.recipes.toml_tables import trusted_tables

    _, (wanted, contents) = trusted_tables(recipe, confirmed=True)
    if not wanted:
        print(f"{recipe}: asks for nothing that needs to be confirmed")
        return
    path = trust.confirm(contents)
    print(f"{recipe}: asks for {', '.join(wanted)}; confirmed in {path}")


@command_of(api.lock)
def lock_command(*, recipe: Annotated[str, typer.Argument()], **given: Any) -> None:
    """Record the models of a recipe on this machine, for glit build --locked.

    Writes RECIPE.lock.json beside the recipe, or into this folder for a built-in recipe.
    """
    path, models = api.lock(recipe, **given)
    for role, model in sorted(models.items()):
        print(f"{role}: {model.identity()['name']} at {model.revision}, sha256 {model.sha256}")
    print(f"wrote {path}")


def default_recipe(has_captions: bool = False) -> str:
    """``flism`` (or ``captions``) if the machine has a GPU and the weights, else ``mini``."""
    from glit.models.device import best_device
    from glit.models.weights import is_here

    if best_device() == "cuda":
        wanted = ["yolos-base", "clip-vit-b-16", *([] if has_captions else ["llava-next-7b"])]
        if all(is_here(name) for name in wanted):
            return "captions" if has_captions else "flism"
    return "mini"


def _refuse_photographs(images: str, *, has_captions: bool) -> None:
    """Refuse the default recipe ``mini`` for images that its models do not understand.

    Raises:
        UserError: most images of a sample are no drawn scenes.
        InputError: the images cannot be listed.
    """
    from glit.doctor.inputs import look_at_images
    from glit.pipeline.planning.recipe import load_recipe

    seen, _ = look_at_images(images, load_recipe("mini"))
    if seen.decoded and seen.scenes < len(seen.decoded) / 2:
        choices = (
            "-r captions-only takes your captions as they are, -r captions also looks for their "
            "regions (glit recipes lists its downloads), -r provided takes --regions too"
            if has_captions
            else "-r laptop downloads 1.1 GB and runs on a CPU, -r provided takes your --captions "
            "and --regions"
        )
        raise UserError(
            f"{images}: these are photographs, and the default recipe here is mini, whose models "
            f"know only drawn scenes; choose a recipe: {choices}"
        )


def _report(
    manifest: Manifest,
    dataset: str,
    progress: StageProgress,
    console: Console,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    counts = manifest.counts
    if as_json:
        print(json.dumps({"dataset": dataset, "counts": as_plain(counts)}))
        return
    without = counts.without_pair if manifest.recipe.has_regions else 0
    bare = f" ({without} without a pair)" if without else ""
    console.print(f"{dataset}: {counts}{bare}", soft_wrap=True)
    for key, number in counts.drops.items():
        console.print(f"  {number:>6} {key}")
    if not quiet:
        console.print(f"took {duration(progress.total_s)}")
    name_next("view", dataset, "-o", page_of(dataset), quiet=quiet)
