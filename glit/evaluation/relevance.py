"""Relevant gallery items of queries."""

from __future__ import annotations

from collections.abc import Sequence

Relevance = Sequence[Sequence[int]]
"""The numbers of every query's relevant items; at least one each."""


def by_text(
    image_of_text: Sequence[int], texts: Sequence[str], num_images: int
) -> tuple[Relevance, Relevance]:
    """Relevance of an image-caption set, both ways: text to image, image to text.

    Equal captions stand for each other: where two images share a caption, both are right answers
    to it, and both copies of it are right answers to either image.

    >>> t2i, i2t = by_text([0, 1, 2], ["a", "b", "a"], 3)
    >>> t2i, i2t
    ([[0, 2], [1], [0, 2]], [[0, 2], [1], [0, 2]])
    """
    images_of: dict[str, list[int]] = {}
    texts_of: dict[str, list[int]] = {}
    of_image: list[list[int]] = [[] for _ in range(num_images)]
    for index, (text, image) in enumerate(zip(texts, image_of_text, strict=True)):
        images_of.setdefault(text, []).append(image)
        texts_of.setdefault(text, []).append(index)
        of_image[image].append(index)
    image_to_text = [
        sorted({other for index in own for other in texts_of[texts[index]]}) for own in of_image
    ]
    return [sorted(set(images_of[text])) for text in texts], image_to_text


def joint_relevance(
    texts: Sequence[str], sample: Sequence[int]
) -> tuple[list[str], Relevance, Relevance]:
    """Relevance of a joint set, whose item i is image i and text i of ``sample[i]``.

    Returns the distinct texts, which are the gallery of the images and the queries for them; the
    right ones of every image, which are all texts of its sample; and the right images of every
    distinct text, which are all images of the samples that have it. Without equal texts this is
    GOAL's relevance.

    >>> texts, t4i, i4t = joint_relevance(["A", "B", "x", "x"], [0, 1, 0, 1])
    >>> texts, t4i, i4t
    (['A', 'B', 'x'], [[0, 2], [1, 2], [0, 2], [1, 2]], [[0, 2], [1, 3], [0, 1, 2, 3]])
    """
    number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    images_of: dict[int, list[int]] = {}
    texts_of: dict[int, list[int]] = {}
    samples_with: list[set[int]] = [set() for _ in number]
    for image, (text, owner) in enumerate(zip(texts, sample, strict=True)):
        images_of.setdefault(owner, []).append(image)
        texts_of.setdefault(owner, []).append(number[text])
        samples_with[number[text]].add(owner)
    texts_for_image = [sorted(set(texts_of[owner])) for owner in sample]
    images_for_text = [
        sorted(image for owner in owners for image in images_of[owner]) for owners in samples_with
    ]
    return list(number), texts_for_image, images_for_text
