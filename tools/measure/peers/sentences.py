"""Cut 6,000 captions of scenes into sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.measure.peers.inputs import captions
from tools.measure.peers.way import Comparison, Way, Work


def _cut(split: Callable[[str], list[str]]) -> Callable[[Path, Path], Work]:
    def prepare(inputs: Path, out: Path) -> Work:
        texts = captions(inputs)
        split(texts[0])
        return lambda: [[part.strip() for part in split(text)] for text in texts]

    return prepare


def _glit_sentences(inputs: Path, out: Path) -> Work:
    from glit.text.sentences import make_splitter

    spans = make_splitter("sentencex", "en")
    return _cut(lambda text: [text[a:b] for a, b in spans(text)])(inputs, out)


def _pysbd(inputs: Path, out: Path) -> Work:
    import pysbd

    return _cut(pysbd.Segmenter(language="en", clean=False).segment)(inputs, out)


def _punkt(inputs: Path, out: Path) -> Work:
    from nltk.tokenize import PunktSentenceTokenizer

    return _cut(PunktSentenceTokenizer().tokenize)(inputs, out)


def _spacy(inputs: Path, out: Path) -> Work:
    import spacy

    model = spacy.blank("en")
    model.add_pipe("sentencizer")
    return _cut(lambda text: [str(each) for each in model(text).sents])(inputs, out)


def _judge(inputs: Path, answer: Any, ours: Any) -> str:
    same = sum(map(lambda a, b: a == b, answer, ours)) / len(ours)
    return f"{100 * same:.1f} % of captions as glit"


COMPARISON = Comparison(
    title="6,000 captions cut into sentences",
    judge=_judge,
    ways=(
        Way(name="glit", prepare=_glit_sentences),
        Way(name="pySBD", prepare=_pysbd, package="pysbd"),
        Way(name="Punkt", prepare=_punkt, package="nltk", note="untrained"),
        Way(name="spaCy", prepare=_spacy, package="spacy", note="its rule of full stops"),
    ),
)
