"""Look for all faults of a dataset or a file in one pass over its images."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from glit.data.reference_list import ReferenceList
from glit.errors import InputError
from glit.images import ImageError
from glit.inspection.addresses import MOST_ADDRESSES, AddressSample
from glit.inspection.boxes import box_faults, box_frame
from glit.inspection.captions import caption_faults, span_faults
from glit.inspection.findings import AuditReport, Estimate, Tally
from glit.inspection.items import Item, Source
from glit.inspection.kinds import KINDS
from glit.inspection.matches import Matches
from glit.inspection.names import name_fault
from glit.inspection.pictures import PictureCheck, check_picture
from glit.inspection.repairs import repair
from glit.inspection.repeats import Repeats
from glit.published.corners import CornerCount
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import batched, map_ahead
from glit.runtime.progress import StageProgress

if TYPE_CHECKING:
    from glit.clip.embedder import Embedder

Thumbnailer = Callable[[bytes], bytes]
NOTHING = "there is nothing of that to look at"
"""Why a check is not made if the format has no texts, boxes or captions for it."""
_AHEAD = 32
_BATCH = 64
_OF_PICTURES = ("picture-damaged", "picture-format", "picture-small", "mining-prohibited")
_OF_CAPTIONS = ("caption-empty", "caption-looping", "caption-refusal", "caption-language")
_OF_SPANS = ("span-words", "text-outside", "span-in-word")
_OF_BOXES = ("box-outside", "box-empty")
_OF_FRAMES = ("box-units", "box-corners", "stated-size", "stated-turned", "stated-shape")


def inspect(
    source: Source,
    progress: StageProgress,
    *,
    images: str = "",
    test_set: ReferenceList | None = None,
    network: bool = False,
    model: Embedder | None = None,
    thumbnailer: Thumbnailer | None = None,
    tally: Tally | None = None,
) -> AuditReport:
    """Audit a dataset or a file.

    Args:
        source: of the images.
        progress: counts them.
        images: the folder of pictures, if the user named it: a picture that is not there is a
            fault then, even if none is.
        test_set: a list of images that may not be among them; None for none.
        network: ask a sample of the addresses.
        model: matches texts with pictures; None for none.
        thumbnailer: makes the thumbnails of examples; None leaves them out.
        tally: counts; None makes a new one.

    Raises:
        InputError: there is no image at all.
    """
    tally = tally or Tally()
    addresses, licences, corners = AddressSample(), Counter[str](), CornerCount()
    if source.total:
        progress.begin("images", total=source.total, done=0, drops=False)
    number = 0
    with Repeats() as repeats, contextlib.ExitStack() as stack:
        matches = None if model is None else stack.enter_context(Matches(model))
        for some in batched(_seen(source, matches, compare=test_set is not None), _BATCH):
            for item, picture in some:
                _look(item, picture, source.language, tally, thumbnailer)
                if item.corners == "xywh" and not item.shares:
                    size = box_frame(item, picture and picture.size)
                    corners.add(item.boxes if size else (), size or (0, 0))
                repeats.add(item.name, item.captions or ())
                if item.address:
                    addresses.add(item.address, item.name)
                if licence := item.licence or (picture.licence if picture else ""):
                    licences[licence] += 1
            if test_set is not None:
                _compare(some, test_set, tally, thumbnailer)
            if matches is not None:
                matches.add([(i, p.squares) for i, p in some if p is not None and p.squares])
            number += len(some)
            if source.total:
                progress.advance(len(some))
        if not number:
            raise InputError(f"{source.what}: has no image to look at")
        _look_at_all(repeats, tally)
        if corners.fault and not tally.at_fault["box-corners"]:
            tally.fault("box-corners", source.what, corners.fault)
        unlooked, estimates = _look_at_matches(matches, tally)
    if network:
        tally.look("address-dead", len(addresses))
        for name, detail in addresses.faults():
            tally.fault("address-dead", name, detail)
    skipped = _not_asked(tally, addresses, test_set, network=network)
    skipped |= {**source.unlooked, **unlooked, **_not_there(tally, source, named=bool(images))}
    report = _report(source, tally, number, skipped, licences, images, test_set)
    return replace(report, estimates=(*report.estimates, *estimates))


def _seen(
    source: Source, matches: Matches | None, *, compare: bool
) -> Iterator[tuple[Item, PictureCheck | None]]:
    """Images with what was seen of their pictures, which threads decode ahead."""

    def see(item: Item) -> tuple[Item, PictureCheck | None]:
        return item, check_picture(item, compare=compare, matches=matches)

    with ThreadPoolExecutor(usable_cores()) as pool:
        yield from map_ahead(pool, see, source.items(), most=_AHEAD)


def _look(
    item: Item,
    picture: PictureCheck | None,
    language: str,
    tally: Tally,
    thumbnailer: Thumbnailer | None,
) -> None:
    """Count one image and its faults."""
    tally.look("unreadable")
    for code, looked_at in item.looked_at:
        tally.look(code, looked_at)
    has_file = picture is not None and not picture.missing
    shown = partial(_thumbnail, item, thumbnailer) if has_file and thumbnailer else None
    for code, detail in item.faults:
        tally.fault(code, item.name, detail, shown)
    if any(code == "unreadable" for code, _ in item.faults) and not item.boxes:
        return
    tally.look("name-unsafe")
    tally.look("name-unportable")
    if fault := name_fault(item.name):
        tally.fault(fault[0], item.name, fault[1], shown)
    for code in _OF_CAPTIONS if item.captions is not None else ():
        tally.look(code, len(item.captions or ("",)))
    for code in _OF_SPANS:
        tally.look(code, len(item.spans))
    for code in _OF_BOXES:
        tally.look(code, len(item.boxes))
    for code in _OF_FRAMES if item.boxes or item.stated else ():
        tally.look(code)
    if picture is not None:
        tally.look("picture-missing")
        for code in _OF_PICTURES if not picture.missing else ():
            tally.look(code)
        for code, detail in picture.faults:
            tally.fault(code, item.name, detail, shown)
        if picture.missing:
            tally.fault("picture-missing", item.name, "no such file")
    for code, detail in (
        *caption_faults(item, language),
        *span_faults(item),
        *box_faults(item, None if picture is None else picture.size),
    ):
        tally.fault(code, item.name, detail, shown)


def _thumbnail(item: Item, thumbnailer: Thumbnailer) -> bytes:
    try:
        return thumbnailer(item.picture()) if item.picture else b""
    except (OSError, ImageError):
        return b""


def _compare(
    some: list[tuple[Item, PictureCheck | None]],
    test_set: ReferenceList,
    tally: Tally,
    thumbnailer: Thumbnailer | None,
) -> None:
    """Compare pictures with those of a test set."""
    seen = [
        (i, p.sha256, p.thumbnail) for i, p in some if p is not None and p.thumbnail is not None
    ]
    tally.look("in-test-set", len(seen))
    matches = test_set.find([each[1] for each in seen], [each[2] for each in seen])
    for (item, _, _), match in zip(seen, matches, strict=True):
        if match is not None:
            shown = partial(_thumbnail, item, thumbnailer) if thumbnailer else None
            detail = f"{match.name}: {match.kind}, {match.likeness}"
            tally.fault("in-test-set", item.name, detail, shown)


def _look_at_all(repeats: Repeats, tally: Tally) -> None:
    """Count what only shows over all images."""
    tally.look("name-clash", len(repeats.names))
    for name, other in repeats.clashes():
        tally.fault("name-clash", name, f"{other} is there too")
    tally.look("caption-repeated", len(repeats.captions))
    for name, detail in repeats.repeated():
        tally.fault("caption-repeated", name, detail)
    tally.look("caption-near", len(repeats.captions))
    for name, detail in repeats.near():
        tally.fault("caption-near", name, detail)


def _look_at_matches(
    matches: Matches | None, tally: Tally
) -> tuple[dict[str, str], tuple[Estimate, ...]]:
    """Count captions of another picture; why there is nothing to say of them, and the estimates of
    pairs."""
    code = "caption-of-another"
    if matches is None:
        return {code: "no model was named; add --model NAME"}, ()
    for name, detail in matches.faults():
        tally.fault(code, name, detail)
    why = matches.unlooked()
    if not why:
        tally.look(code, matches.captions)
    return {code: why} if why else {}, tuple(matches.estimates())


def _not_there(tally: Tally, source: Source, *, named: bool) -> dict[str, str]:
    """Kinds that want pictures, if there are none: where nobody said that they are here, that is no
    fault."""
    missing = tally.at_fault["picture-missing"]
    if tally.looked_at["picture-missing"] == missing and not named:
        tally.at_fault.pop("picture-missing", None)
        why = f"no picture is in {source.pictures or source.what}; name their folder with --images"
        return dict.fromkeys(("picture-missing", *_OF_PICTURES), why)
    return {}


def _not_asked(
    tally: Tally, addresses: AddressSample, test_set: ReferenceList | None, *, network: bool
) -> dict[str, str]:
    """Further kinds that were not looked for."""
    found = {}
    if test_set is None:
        found["in-test-set"] = "no test set was named; add --against LIST"
    elif not tally.looked_at["in-test-set"]:
        found["in-test-set"] = "no picture could be compared"
    if not addresses.number:
        found["address-dead"] = "no addresses are stated"
    elif not network:
        asked = min(addresses.number, MOST_ADDRESSES)
        found["address-dead"] = f"add --network to ask {asked} of {addresses.number} addresses"
    for code in KINDS:
        if not tally.looked_at[code] and code not in found and code not in tally.at_fault:
            found[code] = NOTHING
    return found


def _report(
    source: Source,
    tally: Tally,
    number: int,
    skipped: dict[str, str],
    licences: Counter[str],
    images: str,
    test_set: ReferenceList | None,
) -> AuditReport:
    def command(code: str) -> str:
        return repair(
            code, what=source.what, form=source.format, images=images,
            examples=tally.examples[code], at_fault=tally.at_fault[code],
            test_set="" if test_set is None else test_set.path,
        )  # fmt: skip

    unlooked = {code: why for code, why in skipped.items() if code not in tally.at_fault}
    return AuditReport(
        what=source.what,
        format=source.format,
        images=number,
        findings=tally.findings(command),
        clean=tuple(c for c in KINDS if c not in unlooked and c not in tally.at_fault),
        skipped=tuple((code, unlooked[code]) for code in KINDS if code in unlooked),
        licences=tuple(sorted(licences.items(), key=lambda each: (-each[1], each[0]))),
        estimates=source.estimates(),
    )
