"""Give each picture to one entry of the annotations: the one whose path names its folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from glit.inputs.published.region_image import RegionImage
from glit.storage.members import spellings


@dataclass(slots=True, kw_only=True)
class _Claim:
    """An entry that names a picture."""

    where: str
    published: str
    parts: int
    """Number of trailing path components that the picture and the entry share."""
    has_rows: bool
    contested: bool = False
    """True if an entry of another name has as many parts: the picture has neither's lines."""
    lines: list[tuple[range, range]] = field(default_factory=list)
    """Its lines in the file of captions, and in that of boxes."""


class Claims:
    """The pictures that have captions or boxes, each of one entry: the one whose path names most of
    the picture's folders. Where two names have as many, the picture has none; entries with one
    name and captions are of one picture."""

    def __init__(self) -> None:
        self._by: dict[Path, _Claim] = {}
        self.texts: list[range] = []
        self.boxes: list[range] = []
        """Lines of captions and of boxes that are of no picture after all."""
        self.given_up = 0
        """Entries that these lines were of."""

    def take(
        self,
        path: Path,
        published: str,
        where: str,
        *,
        several: bool,
        has_rows: bool = True,
    ) -> tuple[str, str]:
        """Claim a picture for an entry: why it may not have it, and whose lines go instead.

        Args:
            path: of the picture.
            published: its name as the entry has it.
            where: the place of the entry.
            several: whether several entries may tell of one picture.
            has_rows: whether the entry has captions or boxes.
        """
        published = spellings(published)[-1] if published else ""
        parts = _common_tail(published, path)
        new = _Claim(where=where, published=published, parts=parts, has_rows=has_rows)
        old = self._by.get(path)
        if old is None or (parts >= old.parts and has_rows and not old.has_rows):
            self._by[path] = new
            return "", ""
        is_same = several and old.published == published and not old.contested
        if is_same or (not has_rows and parts <= old.parts):
            return "", ""
        if old.parts > parts:
            return f"the picture has lines of {old.where}, whose path names its folder", ""
        lost = bool(old.lines)
        self.given_up += len(old.lines)
        self.texts += [texts for texts, _ in old.lines]
        self.boxes += [boxes for _, boxes in old.lines]
        old.lines = []
        if old.parts < parts:
            self._by[path] = new
            named = f"{old.where}: the picture is that of {where}, whose path names its folder"
            return "", named * lost
        old.contested = True
        return (
            f"{old.where} names the same picture",
            f"{old.where}: {where} names the same picture" * lost,
        )

    def take_of(self, image: RegionImage, at: str) -> tuple[str, str]:
        """Claim the picture of an image, whose place is named in why it may not have it."""
        several = bool(image.caption)
        reason, other = self.take(image.path, image.published, image.where, several=several)
        return f"{at}: {reason}" if reason else "", other

    def written(self, path: Path, texts: range, boxes: range) -> None:
        """Remember the lines that were written for a picture."""
        self._by[path].lines.append((texts, boxes))


def _common_tail(published: str, path: Path) -> int:
    """The number of names at the end of two paths that are the same.

    >>> _common_tail("dir_1/x.png", Path("/a/dir_2/x.png"))
    1
    """
    if not published:
        return len(path.parts)
    both = zip(reversed(published.split("/")), reversed(path.resolve().parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))


def is_claim(image: RegionImage) -> bool:
    """Return whether an entry claims its picture: FineHARD's twelve million, each with a caption
    and a path of its own, are not remembered."""
    return bool(image.published or not image.caption)
