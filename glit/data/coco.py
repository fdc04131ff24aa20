"""Files in COCO's layout (cocodataset.org, format of data): images, annotations and categories that
name one another by id. LVIS, MDETR, RefCOCO, FG-OVD, CVAT and Label Studio write it too."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Id = int | float | str | None
Annotations = list[tuple[int, dict[str, Any]]]
"""Annotations with their places in the file, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoImage:
    """An image of the file, and what the file says of it."""

    number: int
    """Its place in the file, from 1."""
    entry: dict[str, Any]
    fault: str
    """Why no annotation can be of it; empty for a good one."""
    annotations: Annotations = field(default_factory=list)

    @property
    def file_name(self) -> str:
        """The path of the image file; LVIS states it only at the end of ``coco_url``."""
        if "file_name" in self.entry:
            return self.entry["file_name"]
        return "/".join(urlsplit(self.entry["coco_url"]).path.split("/")[-2:])


class CocoFile:
    """The images of a file in COCO's layout, each with its annotations.

    Raises:
        KeyError: it lacks images or annotations.
        TypeError, AttributeError: these are no lists of objects.
        ValueError: two categories have one id.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        annotations = values["annotations"]
        self.is_captions = bool(annotations) and all(
            isinstance(each, dict) and "caption" in each and "bbox" not in each
            for each in annotations
        )
        """Whether its annotations are captions, and no boxes."""
        self.categories = _categories(values.get("categories") or [])
        """Names of the categories by their ids."""
        self.without_image: dict[Id, Annotations] = {}
        """Annotations of images that the file does not list, by the ids of these."""
        self._has_crowds = _has_crowds(annotations)
        for number, each in enumerate(annotations, start=1):
            self.without_image.setdefault(id_of(each, "image_id"), []).append((number, each))
        times = Counter(id_of(entry, "id") for entry in values["images"])
        self.images: list[CocoImage] = []
        for number, entry in enumerate(values["images"], start=1):
            key = id_of(entry, "id")
            of_it = self.without_image.pop(key, []) if key is not None else []
            fault = "no id" if key is None else ""
            if times[key] > 1 and not fault:
                fault = f"{times[key]} images have the id {key}"
            self.images.append(
                CocoImage(number=number, entry=entry, fault=fault, annotations=of_it)
            )

    def checked(self) -> CocoFile:
        """This file, if each of its images has an id of its own.

        Raises:
            ValueError: one has none, or that of another.
        """
        for image in self.images:
            if image.fault:
                raise ValueError(image.fault)
        return self

    def no_image(self, key: Id) -> str:
        """Say that the file does not list the image of annotations."""
        return f"no image has the id {key!r:.40} ({len(self.without_image[key])} annotations)"

    def is_crowd(self, annotation: dict[str, Any]) -> bool:
        """Return whether a box is of many things."""
        return self._has_crowds and bool(annotation.get("iscrowd"))

    def category(self, annotation: dict[str, Any]) -> Any:
        """The name of an annotation's category; empty if the file has none.

        Raises:
            KeyError: it has no category.
            ValueError: the file does not list its category.
        """
        key = annotation["category_id"] if self.categories else annotation.get("category_id")
        if key is None:
            return ""
        if key not in self.categories:
            raise ValueError(f"no category has the id {key!r:.40}")
        return self.categories[key]


def id_of(entry: Any, key: str) -> Id:
    """The id under a key, of pandas ``1.0`` for 1; None if there is none."""
    value = entry.get(key) if isinstance(entry, dict) else None
    return value if isinstance(value, int | float | str) else None


def _categories(entries: list[dict[str, Any]]) -> dict[Any, Any]:
    names: dict[Any, Any] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            continue  # whose annotations, if it has any, name no category
        key, name = entry["id"], entry["name"]
        if names.setdefault(key, name) != name:
            raise ValueError(f"two categories have the id {key}: {names[key]} and {name}")
    return names


def _has_crowds(annotations: list[Any]) -> bool:
    """Return whether ``iscrowd`` says that a box is of many things. CVAT, whose annotations have an
    attribute ``occluded``, says by it that a mask was painted; where all have it, it says nothing.
    """
    known = [each for each in annotations if isinstance(each, dict)]
    attributes = [each["attributes"] for each in known if isinstance(each.get("attributes"), dict)]
    is_of_cvat = any("occluded" in each for each in attributes)
    return not is_of_cvat and not all(each.get("iscrowd") for each in known)
