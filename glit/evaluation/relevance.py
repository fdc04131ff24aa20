"""Relevant gallery items of queries, as a flat list of index pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Relevant items of every query; at least one each."""

    item: Int[np.ndarray, " m"]
    """Gallery items, the first query's first."""

    start: Int[np.ndarray, " q1"]
    """Query q's items are ``item[start[q]:start[q + 1]]``."""

    @classmethod
    def of(cls, sets: Iterable[Sequence[int]]) -> Relevance:
        """From one collection of item numbers per query."""
        lists = [sorted(set(each)) for each in sets]
        assert all(lists), "every query needs a relevant item"
        lengths = np.array([0, *map(len, lists)], dtype=np.int64)
        flat = np.array([i for each in lists for i in each], dtype=np.int64)
        return cls(item=flat, start=np.cumsum(lengths))

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, query: int) -> Int[np.ndarray, " r"]:
        return self.item[self.start[query] : self.start[query + 1]]

    def mask(self, queries: slice, num_gallery: int) -> Bool[Tensor, "q c"]:
        """Which items are relevant to each of some queries."""
        mask_QC = torch.zeros(queries.stop - queries.start, num_gallery, dtype=torch.bool)
        for row_C, query in zip(mask_QC, range(queries.start, queries.stop), strict=True):
            row_C[self[query]] = True
        return mask_QC


def by_text(
    image_of_text: Sequence[int], texts: Sequence[str], num_images: int
) -> tuple[Relevance, Relevance]:
    """Relevance of an image-caption set, both ways: text to image, image to text.

    Equal captions stand for each other: where two images share a caption, both are right answers
    to it, and both copies of it are right answers to either image.

    >>> t2i, i2t = by_text([0, 1, 2], ["a", "b", "a"], 3)
    >>> t2i.item.tolist(), i2t.item.tolist()
    ([0, 2, 1, 0, 2], [0, 2, 1, 0, 2])
    """
    images_of: dict[str, list[int]] = {}
    texts_of: dict[str, list[int]] = {}
    of_image: list[list[int]] = [[] for _ in range(num_images)]
    for index, (text, image) in enumerate(zip(texts, image_of_text, strict=True)):
        images_of.setdefault(text, []).append(image)
        texts_of.setdefault(text, []).append(index)
        of_image[image].append(index)
    text_to_image = Relevance.of(images_of[text] for text in texts)
    image_to_text = Relevance.of(
        [other for index in own for other in texts_of[texts[index]]] for own in of_image
    )
    return text_to_image, image_to_text


def joint_relevance(
    texts: Sequence[str], sample: Sequence[int]
) -> tuple[list[str], Relevance, Relevance]:
    """Relevance of a joint set, whose item i is image i and text i of ``sample[i]``.

    Returns the distinct texts, which are the gallery of the images and the queries for them; the
    right ones of every image, which are all texts of its sample; and the right images of every
    distinct text, which are all images of the samples that have it. Without equal texts this is
    GOAL's relevance.

    >>> texts, t4i, i4t = joint_relevance(["A", "B", "x", "x"], [0, 1, 0, 1])
    >>> texts, t4i.item.tolist(), i4t.item.tolist()
    (['A', 'B', 'x'], [0, 2, 1, 2, 0, 2, 1, 2], [0, 2, 1, 3, 0, 1, 2, 3])
    """
    number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    images_of: dict[int, list[int]] = {}
    texts_of: dict[int, list[int]] = {}
    samples_with: list[set[int]] = [set() for _ in number]
    for image, (text, owner) in enumerate(zip(texts, sample, strict=True)):
        images_of.setdefault(owner, []).append(image)
        texts_of.setdefault(owner, []).append(number[text])
        samples_with[number[text]].add(owner)
    texts_for_image = Relevance.of(texts_of[owner] for owner in sample)
    images_for_text = Relevance.of(
        [image for owner in owners for image in images_of[owner]] for owners in samples_with
    )
    return list(number), texts_for_image, images_for_text
