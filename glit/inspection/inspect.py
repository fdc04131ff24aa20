"""Look for all faults of a dataset or a file in one pass over its images."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from glit.data.frames import XYXY
from glit.data.reference_list import ReferenceList
from glit.errors import InputError
from glit.images import ImageError
from glit.inputs.no_images import no_images
from glit.inputs.published.corners import CornerCount, UnitCount
from glit.inputs.source import find_source
from glit.inspection.boxes import PictureSize, box_faults, box_frame, named_boxes
from glit.inspection.captions import caption_faults, span_faults
from glit.inspection.findings import AuditReport, Tally
from glit.inspection.items import Item, Source
from glit.inspection.kinds import KINDS
from glit.inspection.matches import Matches
from glit.inspection.names import name_fault
from glit.inspection.pictures import PictureCheck, check_picture
from glit.inspection.repairs import repair
from glit.inspection.repeats import Repeats
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import batched, map_ahead
from glit.runtime.progress import StageProgress

if TYPE_CHECKING:
    from glit.models.clip.embedder import Embedder

Thumbnailer = Callable[[bytes, Sequence[XYXY]], bytes]
"""Makes a thumbnail of an encoded picture, with boxes in pixels of the upright picture."""
Seen = tuple[Item, PictureCheck | None]
"""An image with what was seen of its picture."""
NOTHING = "there is nothing of that to look at"
"""Why a check is not made if the format has no texts, boxes or captions for it."""
_AHEAD = 32
_BATCH = 64
_MOST_LICENCES = 10_000
"""That are counted one by one: a picture may name an address of its own."""
_OTHER_LICENCES = "others"
_OF_PICTURES = (
    "picture-damaged", "picture-format", "picture-small", "picture-blank", "picture-location",
    "mining-prohibited",
)  # fmt: skip
_OF_NAMES = ("name-unsafe", "name-unportable")
_OF_CAPTIONS = ("caption-empty", "caption-looping", "caption-refusal", "caption-garbled",
                "caption-language")  # fmt: skip
_OF_SPANS = ("span-words", "text-outside", "span-in-word")
_OF_ANOTHER = "caption-of-another"
_OF_BOXES = ("box-outside", "box-empty")
_OF_FRAMES = ("box-units", "box-corners", "stated-size", "stated-turned", "stated-shape")


def inspect(
    source: Source,
    progress: StageProgress,
    *,
    images: str = "",
    test_set: ReferenceList | None = None,
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
        model: matches texts with pictures; None for none.
        thumbnailer: makes the thumbnails of examples; None leaves them out.
        tally: counts; None makes a new one.

    Raises:
        InputError: there is no image at all.
    """
    if source.total:
        progress.begin("images", total=source.total, done=0, drops=False)
    with contextlib.ExitStack() as stack:
        repeats = stack.enter_context(contextlib.closing(Repeats()))
        matches = stack.enter_context(contextlib.closing(Matches(model))) if model else None
        audit = _Audit(source, tally or Tally(), repeats, matches, test_set, thumbnailer)
        for some in batched(audit.seen(), _BATCH):
            audit.look(some)
            if source.total:
                progress.advance(len(some))
        audit.look_at_all()
        return audit.report(images)


class _Audit:
    """All that is known of the images so far."""

    def __init__(
        self,
        source: Source,
        tally: Tally,
        repeats: Repeats,
        matches: Matches | None,
        test_set: ReferenceList | None,
        thumbnailer: Thumbnailer | None,
    ) -> None:
        self._source, self._tally, self._thumbnailer = source, tally, thumbnailer
        self._repeats, self._matches, self._test_set = repeats, matches, test_set
        self._licences = Counter[str]()
        self._corners, self._units = CornerCount(), UnitCount()

    def seen(self) -> Iterator[Seen]:
        """Images with what was seen of their pictures, which threads decode ahead."""

        def see(item: Item) -> Seen:
            return item, check_picture(
                item, compare=self._test_set is not None, matches=self._matches
            )

        with ThreadPoolExecutor(usable_cores()) as pool:
            yield from map_ahead(pool, see, self._source.items(), most=_AHEAD)

    def look(self, some: list[Seen]) -> None:
        """Count images and their faults, and keep what only shows over all of them."""
        for item, picture in some:
            self._look_at(item, picture)
            if item.shares:
                self._units.add_shares(item.boxes)
            elif size := box_frame(item, picture and picture.size):
                is_xywh = item.corners == "xywh"
                self._corners.add(item.boxes if is_xywh else (), size)
                self._units.add(item.boxes, size, xywh=is_xywh)
            self._repeats.add(item.name, item.captions or ())
            if licence := item.licence or (picture.licence if picture else ""):
                known = licence in self._licences or len(self._licences) < _MOST_LICENCES
                self._licences[licence if known else _OTHER_LICENCES] += 1
        self._compare(some)
        if self._matches is not None:
            self._matches.add([(i, p.squares) for i, p in some if p is not None and p.squares])

    def _look_at(self, item: Item, picture: PictureCheck | None) -> None:
        """Count one image and its faults."""
        tally = self._tally
        tally.look("unreadable")
        for code, looked_at in item.looked_at:
            tally.look(code, looked_at)
        has_file = picture is not None and not picture.missing
        size = None if picture is None else picture.size
        shown = partial(self._thumbnail, item, size) if has_file else None
        for code, detail in item.faults:
            tally.fault(code, item.name, detail, shown)
        if any(code == "unreadable" for code, _ in item.faults) and not item.boxes:
            return
        for codes, number in (
            (_OF_NAMES, 1),
            (_OF_CAPTIONS, len(item.captions or ("",)) if item.captions is not None else 0),
            (_OF_SPANS, len(item.spans)),
            (_OF_BOXES, len(item.boxes)),
            (_OF_FRAMES, int(bool(item.boxes or item.stated))),
            (("picture-missing",), int(picture is not None)),
            (_OF_PICTURES, int(has_file)),
        ):
            for code in codes:
                tally.look(code, number)
        for code, detail in (
            *filter(None, [name_fault(item.name)]),
            *(picture.faults if picture else ()),
            *([("picture-missing", "no such file")] if picture and picture.missing else ()),
            *caption_faults(item, self._source.language),
            *span_faults(item),
            *box_faults(item, size),
        ):
            with_box = partial(shown, detail) if shown and code.startswith("box-") else shown
            tally.fault(code, item.name, detail, with_box)

    def _thumbnail(self, item: Item, size: PictureSize | None = None, detail: str = "") -> bytes:
        """The thumbnail of an image, with the boxes that a fault's detail names."""
        try:
            boxes = [] if size is None or not detail else named_boxes(item, detail, size)
            if self._thumbnailer and item.picture:
                return self._thumbnailer(item.picture(), boxes)
        except (OSError, ImageError):
            pass
        return b""

    def _compare(self, some: list[Seen]) -> None:
        """Compare pictures with those of a test set."""
        if self._test_set is None:
            return
        seen = [(i, p.sha256, p.thumbnail) for i, p in some if p and p.thumbnail is not None]
        self._tally.look("in-test-set", len(seen))
        matches = self._test_set.find([each[1] for each in seen], [each[2] for each in seen])
        for (item, _, _), match in zip(seen, matches, strict=True):
            if match is not None:
                detail = f"{match.name}: {match.kind}, {match.likeness}"
                shown = partial(self._thumbnail, item)
                self._tally.fault("in-test-set", item.name, detail, shown)

    def look_at_all(self) -> None:
        """Count what only shows over all images.

        Raises:
            InputError: there are none.
        """
        tally, repeats = self._tally, self._repeats
        if not tally.looked_at["unreadable"]:
            what = self._source.what
            if os.path.isdir(what):
                raise InputError(no_images(find_source(what), what))
            raise InputError(f"{what}: has no image to look at")
        tally.count("name-clash", len(repeats.names), repeats.clashes())
        tally.count("caption-repeated", len(repeats.captions), repeats.repeated())
        tally.count("caption-near", len(repeats.captions), repeats.near())
        if self._corners.fault and not tally.at_fault["box-corners"]:
            tally.fault("box-corners", self._source.what, self._corners.fault)
        explained = tally.at_fault["box-units"] or tally.at_fault["box-corners"]
        if self._units.fault and not explained:
            tally.fault("box-units", self._source.what, self._units.fault)
        if self._matches is not None and not self._matches.unlooked():
            tally.count(_OF_ANOTHER, self._matches.captions, self._matches.faults())

    def report(self, images: str) -> AuditReport:
        """All findings.

        Args:
            images: the folder of pictures, if the user named it.
        """
        source, tally = self._source, self._tally
        skipped = {**self._not_asked(), **source.unlooked}
        skipped |= self._without_pictures(named=bool(images))
        skipped = {code: why for code, why in skipped.items() if code not in tally.at_fault}
        repairs = partial(
            repair, what=source.what, form=source.format, images=images,
            test_set="" if self._test_set is None else self._test_set.path,
        )  # fmt: skip
        of_pairs = () if self._matches is None else self._matches.estimates()
        return AuditReport(
            what=source.what,
            format=source.format,
            images=tally.looked_at["unreadable"],
            findings=tally.findings(repairs),
            clean=tuple(c for c in KINDS if c not in skipped and c not in tally.at_fault),
            skipped=tuple((code, skipped[code]) for code in KINDS if code in skipped),
            licences=tuple(sorted(self._licences.items(), key=lambda each: (-each[1], each[0]))),
            estimates=(*source.estimates(), *of_pairs),
        )

    def _without_pictures(self, *, named: bool) -> dict[str, str]:
        """Kinds that want pictures, if there are none: where nobody said that they are here, that
        is no fault."""
        tally, source = self._tally, self._source
        if named or tally.looked_at["picture-missing"] != tally.at_fault["picture-missing"]:
            return {}
        tally.at_fault.pop("picture-missing", None)
        why = f"no picture is in {source.pictures or source.what}; name their folder with --images"
        return dict.fromkeys(("picture-missing", *_OF_PICTURES), why)

    def _not_asked(self) -> dict[str, str]:
        """Further kinds that were not looked for."""
        tally = self._tally
        found = {code: NOTHING for code in KINDS if not tally.looked_at[code]}
        if self._test_set is None:
            found["in-test-set"] = "no test set was named; add --against LIST"
        elif not tally.looked_at["in-test-set"]:
            found["in-test-set"] = "no picture could be compared"
        if self._matches is None:
            found[_OF_ANOTHER] = "no model was named; add --model NAME"
        elif why := self._matches.unlooked():
            found[_OF_ANOTHER] = why
        return found
