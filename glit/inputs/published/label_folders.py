"""Boxes with a file for every picture: YOLO, Pascal VOC, LabelMe."""

from __future__ import annotations

import contextlib
import math
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from glit.data.json_files import load_json, read_text
from glit.errors import InputError
from glit.images.formats import suffix_of
from glit.inputs.published.files import ALL, chosen_parts, no_parts, published_place
from glit.inputs.published.picture_folder import PictureFolder, files_below
from glit.inputs.published.region_image import RegionImage, as_number, outline, turned_box
from glit.inputs.published.xml_files import element_text, xml_root
from glit.inputs.published.yolo_lines import LONG, TASKS, Kind, LineKinds

_MOST_BYTES = 1 << 24
"""Bytes of a file of labels or names."""
_MOST_YAML = 1 << 18
"""Bytes of a file of names in YAML, which takes seconds to read."""
_MOST_LABELME = 1 << 28
"""Bytes of a file of LabelMe's, which may hold the picture."""
_MOST_SHARE = 1.01
"""The largest share that ultralytics takes as rounded."""
_YAML = (".yaml", ".yml")
_NAMES = ("classes.txt", "obj.names")
"""Files with the name of a class a line."""
_BOX = 4
"""Numbers of a box."""
_LEAST_PIXELS = 2
"""Above it, a number is no share of a box that leaves its picture."""


def yolo(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """YOLO's labels (docs.ultralytics.com/datasets/detect): ``data.yaml`` or its folder, with
    ``labels/PART/NAME.txt`` for ``images/PART/NAME.jpg``, or each beside its picture, with names in
    ``classes.txt``. ``path`` of a yaml may name another folder.

    A line is ``class x y width height`` (centre; shares of the picture), a score after it if a
    model predicted it, and the number of a track; or ``class x0 y0 x1 y1 ...``, the corners of a
    segment or of a turned box, of which the box around is taken; or a box with key points, which
    are left. What a line is follows from ``kpt_shape`` or ``task`` of the yaml, else from all
    lines together.
    """
    given, (names, kind) = yolo_folder(annotations), _class_names(annotations)
    root = given.parent if given.name == "labels" else given
    pictures = PictureFolder(images or root)
    files = _label_files(given, root, pictures if images else None)
    if not files:
        raise InputError(
            f"{given}: no .txt file in a folder labels, nor beside a picture; folders that are "
            "links are not followed; if the pictures lie elsewhere, name their folder with --images"
        )
    parts = {file: _part(file.relative_to(root)) for file in files}
    chosen = None if split in (None, ALL) else chosen_parts(split, sorted({*parts.values()} - {""}))
    files = [file for file in files if chosen is None or parts[file] in chosen]
    kinds = LineKinds(kind)
    for file in files if kind != "points" else ():
        kinds.add(_long_lines(file))
    for file in files:
        place = _stem_of(file, root)
        image = RegionImage(path=pictures.root / f"{place}.jpg", where=_within(file, root))
        with image.whole():
            image.path = pictures.find(_swapped(place))
            image.published = f"{_swapped(place)}{image.path.suffix}"
            for number, line in enumerate(_text_of(file).splitlines(), start=1):
                if line.strip():
                    with image.record(f"line {number}"):
                        _add_yolo(image, line.split(), names, kinds)
        yield image


def _stem_of(file: Path, root: Path) -> PurePosixPath:
    return PurePosixPath(file.relative_to(root).as_posix()).with_suffix("")


def _swapped(place: PurePosixPath) -> PurePosixPath:
    """The picture's place, of that of its labels."""
    return PurePosixPath(*("images" if part == "labels" else part for part in place.parts))


def _long_lines(file: Path) -> Iterator[list[float]]:
    """Yield the numbers of the lines that may be more than a box."""
    try:
        lines = [line.split()[1:] for line in _text_of(file).splitlines()]
    except (OSError, ValueError):  # which reading it reports
        return
    for values in lines:
        if len(values) > _BOX:
            with contextlib.suppress(ValueError):
                yield [as_number(each) for each in values]


def _add_yolo(
    image: RegionImage, fields: list[str], names: Sequence[str], kinds: LineKinds
) -> None:
    shares = kinds.without_track([as_number(each) for each in fields[1:]])
    score, kind = None, kinds.of(shares) if len(shares) >= LONG else ""
    if kind == "points":
        shares = shares[:_BOX]
    elif len(shares) % 2:
        *shares, score = shares
    if len(shares) != _BOX and len(shares) < LONG:
        raise ValueError(f"{len(fields)} fields, want a class and 4, or 6 and more")
    if min(shares) < 1 - _MOST_SHARE or max(shares) > _MOST_SHARE:
        found = "pixels" if max(shares) > _LEAST_PIXELS else "leaves the picture"
        said = " ".join(fields[1:])[:60]
        raise ValueError(f"{said}: {found}, want shares of the picture, from 0 to 1")
    if len(shares) == _BOX:
        x, y, width, height = shares
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    else:
        box, _ = outline(list(zip(shares[::2], shares[1::2], strict=True)))
    image.add(box, label=_class_name(fields[0], names), score=score)


def _class_name(number: str, names: Sequence[str]) -> str:
    """The name of a class, whose number may be written as ``1.0e+00``."""
    try:
        place = as_number(number)
    except ValueError:
        place = -1.0
    if place % 1 or not 0 <= place < len(names):
        raise ValueError(f"class {number[:20]}, want a number from 0 to {len(names) - 1}")
    if not names[int(place)]:
        raise ValueError(f"class {number[:20]} has no name: its line is empty")
    return names[int(place)]


def yolo_folder(annotations: Path) -> Path:
    """The folder of YOLO's labels: that of the yaml, or the one that its ``path`` names."""
    if annotations.is_dir() or annotations.suffix.lower() not in _YAML:
        return annotations if annotations.is_dir() else annotations.parent
    try:
        elsewhere = annotations.parent / str(_yaml_of(annotations).get("path") or "")
    except ValueError:  # which reading it reports
        return annotations.parent
    is_there = any((elsewhere / name).is_dir() for name in ("labels", "images"))
    return Path(os.path.normpath(elsewhere)) if is_there else annotations.parent


def _yaml_of(file: Path) -> dict[str, Any]:
    import yaml

    try:
        # all plain text: "no" is a name and not false, and aliases are not multiplied by merging
        values: Any = yaml.load(read_text(file, most=_MOST_YAML), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{file.name}: no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise ValueError(f"{file.name}: no YAML with names")
    return values


def _class_names(annotations: Path) -> tuple[list[str], Kind | None]:
    """The names of the classes, and what the numbers of long lines are, if a yaml says it."""
    file = _names_file(annotations) if annotations.is_dir() else annotations
    if file.suffix.lower() not in _YAML:
        return [line.strip() for line in _text_of(file).rstrip().splitlines()], None
    values = _yaml_of(file)
    names = values["names"]
    if isinstance(names, dict):
        names = [names.get(str(number)) for number in range(len(names))]
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"{file.name}: names: want a list, or numbers from 0 with names")
    if "kpt_shape" in values:
        return list(map(str, names)), "points"
    return list(map(str, names)), TASKS.get(str(values.get("task")))


def _names_file(folder: Path) -> Path:
    places = [folder, *([folder.parent] if folder.name == "labels" else [])]
    yamls = [each for place in places for kind in ("*.yaml", "*.yml") for each in place.glob(kind)]
    if len(yamls) > 1:
        raise InputError(f"{folder}: has {yamls[0].name} and {yamls[1].name}; give one of them")
    plain = [place / name for place in places for name in _NAMES]
    found = [*yamls, *(each for each in plain if each.is_file())]
    if not found:
        found = [file for file in files_below(folder, _NAMES[0]) if file.name == _NAMES[0]]
        if len({_text_of(file) for file in found}) > 1:
            raise InputError(f"{found[0]} and {found[1]} differ; write {folder / _NAMES[0]}")
    if not found:
        raise InputError(f"{folder}: no data.yaml and no classes.txt, so the classes have no names")
    return found[0]


def _label_files(given: Path, root: Path, elsewhere: PictureFolder | None) -> list[Path]:
    """The files in folders ``labels``; without such a folder, those beside a picture, or of the
    name of one in another folder."""
    files = [file for file in files_below(given, ".txt") if file.name not in _NAMES]
    if given.name == "labels":
        return files
    found = [file for file in files if "labels" in file.relative_to(given).parts[:-1]]
    if found:
        return found
    stems: dict[Path, set[str]] = {}
    for file in files:
        if file.parent not in stems:
            names = os.listdir(file.parent)
            stems[file.parent] = {os.path.splitext(n)[0] for n in names if suffix_of(n) != ".txt"}
    found = [file for file in files if file.stem in stems[file.parent]]
    if found or elsewhere is None:
        return found
    return [file for file in files if elsewhere.holds(_swapped(_stem_of(file, root)))]


def _part(place: Path) -> str:
    folders = [part for part in place.parts[:-1] if part not in ("labels", "images")]
    return folders[0] if folders else ""


def voc(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """Pascal VOC (its development kit, section 4): the folder with ``Annotations/*.xml`` and
    ``JPEGImages``, a folder of such files, or one.

    Corners count pixels from 1 to the last one inside. A part of an object is left. Of a box that
    CVAT or roLabelImg turned, the box around it is taken, and its corners as the mask.
    """
    root = annotations if annotations.is_dir() else annotations.parent
    own = root / "Annotations"
    folder = own if own.is_dir() else root
    files = list(files_below(folder, ".xml")) if annotations.is_dir() else [annotations]
    chosen = None if split in (None, ALL) else _voc_names(root / "ImageSets" / "Main", split)
    base = images or root
    pictures = PictureFolder(base)
    for file in files:
        stem = file.relative_to(folder).with_suffix("").as_posix()
        if chosen is not None and stem not in chosen:
            continue
        image = RegionImage(path=base / f"{stem}.jpg", where=_within(file, root), shares=False)
        with image.whole():
            _read_voc(image, file, pictures)
        yield image


def _voc_names(folder: Path, split: str | None) -> set[str]:
    lists = {file.stem: file for file in files_below(folder, ".txt")}
    chosen = chosen_parts(split, sorted(lists))
    lines = (line for part in chosen for line in _text_of(lists[part]).splitlines())
    return {line.split()[0] for line in lines if line.strip()}


def _read_voc(image: RegionImage, file: Path, pictures: PictureFolder) -> None:
    root = xml_root(file, "annotation", most=_MOST_BYTES)
    name = PureWindowsPath(element_text(root, "filename").strip()).as_posix()
    place = PurePosixPath("JPEGImages", name)
    if suffix_of(name):
        image.published = str(place)
        image.path = published_place(image.published, pictures.root)
    else:
        image.path = pictures.find(place)
    if root.find("size") is not None:
        sides = [as_number(element_text(root, f"size/{side}")) for side in ("width", "height")]
        image.stated = (sides[0], sides[1]) if all(sides) else None  # some tools write 0
    for number, each in enumerate(root.iter("object"), start=1):
        with image.record(f"object {number}"):
            box, corners = _voc_box(each)
            segmentation = corners if image.stated else None
            label = element_text(each, "name").strip()
            image.add(box, label=label, segmentation=segmentation)


def _voc_box(each: ET.Element) -> tuple[Sequence[float], list[list[float]] | None]:
    """The box of an object, around it if it is turned, and then its corners."""
    if each.find("bndbox") is None and each.find("robndbox") is not None:
        x, y, width, height, angle = (
            as_number(element_text(each, f"robndbox/{key}"))
            for key in ("cx", "cy", "w", "h", "angle")
        )
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        return turned_box(box, math.degrees(angle))
    x0, y0, x1, y1 = (
        as_number(element_text(each, f"bndbox/{key}")) for key in ("xmin", "ymin", "xmax", "ymax")
    )
    rotation = next(
        (
            one.findtext("value")
            for one in each.iter("attribute")
            if (one.findtext("name") or "").strip() == "rotation"
        ),
        None,
    )
    return turned_box((x0 - 1, y0 - 1, x1, y1), rotation)


def labelme(annotations: Path, images: Path | None, split: str | None) -> Iterator[RegionImage]:
    """LabelMe (github.com/wkentaro/labelme): a file beside each picture, as it saves them, or a
    folder of such files.

    ``shapes`` have a ``shape_type`` and ``points`` in pixels from the edge. Polygons get a mask, as
    do X-AnyLabeling's turned boxes (``rotation``), of which the box around is taken;
    lines and points have no box and are left out.
    """
    no_parts(split)
    root = annotations if annotations.is_dir() else annotations.parent
    files = files_below(root, ".json") if annotations.is_dir() else [annotations]
    for file in files:
        image = RegionImage(path=file.with_suffix(".jpg"), where=_within(file, root), shares=False)
        with image.whole():
            values = load_json(file, most=_MOST_LABELME)
            name = PureWindowsPath(values["imagePath"]).as_posix()
            image.path = published_place(name, images) if images else file.parent / name
            width, height = values.get("imageWidth"), values.get("imageHeight")
            image.stated = None if width is None and height is None else (width, height)
            for number, shape in enumerate(values["shapes"], start=1):
                with image.record(f"shape {number}"):
                    _add_shape(image, shape)
        yield image


def _add_shape(image: RegionImage, shape: dict[str, Any]) -> None:
    kind = shape.get("shape_type") or "polygon"
    points = [(as_number(x), as_number(y)) for x, y in shape["points"]]
    box, segmentation = outline(points)
    if kind not in ("polygon", "rotation") or not image.stated:
        segmentation = None
    if kind == "circle":
        (x, y), (x1, y1) = points
        radius = ((x1 - x) ** 2 + (y1 - y) ** 2) ** 0.5
        box = (x - radius, y - radius, x + radius, y + radius)
    elif kind == "mask":  # from the first to the last pixel
        box = (box[0], box[1], box[2] + 1, box[3] + 1)
    elif kind not in ("rectangle", "rotation", "polygon"):
        raise ValueError(f"a {kind[:30]}, which has no box")
    image.add(box, label=shape["label"], segmentation=segmentation)


def _text_of(file: Path) -> str:
    return read_text(file, most=_MOST_BYTES)


def _within(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()
