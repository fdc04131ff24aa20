"""The ``[evaluate]`` table of a recipe. Loads no model library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from glit.errors import RecipeError
from glit.evaluation.encode_config import EncodeConfig
from glit.plain import limited
from glit.recipes.config import Choice, require_value

if TYPE_CHECKING:
    from glit.evaluation.scorers.protocol import Scorer

PairChoice = Literal["best", "all"]
BoxChoice = Literal["crop", "patches"]


def _scorers() -> Mapping[str, type[Scorer]]:
    from glit.evaluation.scorers import SCORERS  # they bring torch

    return SCORERS


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig(EncodeConfig):
    """Evaluation of models. The defaults follow the papers."""

    scorer: str = "cosine"
    """The comparison of an image with a text in ``retrieval``, ``robustness`` and ``choose``:
    ``cosine`` of both embeddings; ``sentence-average`` averages the embeddings of single sentences
    (Table XV's baseline); ``sentence-patches`` compares every sentence with the patches that fit it
    best, for models whose patches were trained; ``finelip`` is the training score of that
    objective."""

    options: Any = None
    """The scorer itself, with its keys; None takes their defaults."""

    choice: ClassVar[Choice] = Choice(key="scorer", options=_scorers)

    recall_at: tuple[int, ...] = limited((1, 5, 10, 15, 25, 50), least=1)
    """The values of K for Recall@K."""

    precision_at: int = limited(10, least=1)
    """The value of K for mAP@K in ``joint-map``."""

    localize_at: tuple[int, ...] = limited((1, 5, 10, 15), least=1)
    """``localize``: a hit has one of this many best patches inside the region."""

    localize_pairs: PairChoice = "best"
    """``localize`` over the best pair of every sample, or over all its pairs."""

    box_features: BoxChoice = "crop"
    """``choose``, ``boxes`` and ``refer`` embed a box as a crop of the image, or as the mean of the
    patches under it of the whole image, squeezed into the model's square (``patches``), which
    objectives with regions train."""

    unmixed: bool = False
    """``segment``: in the last layer every patch attends to itself alone, as in MaskCLIP; better
    for models whose patches were never trained. Runs of ``fg-clip`` and ``beta-clip``, which train
    such patches, are always measured by them."""

    quality_samples: int = limited(1000, least=0)
    """``caption-quality``: number of random pairs, as in Table I; 0 takes all."""

    templates: str = "openai-80"
    """``classify``: the templates for class names: the 80 of CLIP's authors (``openai-80``), the
    best seven (``openai-7``), or your own: ``a photo of a {}.``"""

    class_names: str = ""
    """``classify``: a JSON file that maps folders to class names. Default: ``classes.json`` in the
    folder, else the folders' names."""

    chunk_size: int = limited(4096, least=1)
    """Side of the similarity blocks; memory grows with its square, and results do not depend on
    it."""

    seed: int = 0
    """Seed for drawing samples and false sentences."""

    def check(self) -> None:
        for name in ("recall_at", "localize_at"):
            require_value(bool(getattr(self, name)), f"[evaluate] {name}: wants a number or more")

    def make_scorer(self) -> Scorer:
        """The scorer with its keys.

        Raises:
            RecipeError: there is none of that name.
        """
        known = _scorers()
        if self.scorer not in known:
            raise RecipeError(
                f"evaluate.scorer = {self.scorer!r}: wanted one of {', '.join(known)}"
            )
        if self.options is None:
            return known[self.scorer]()
        if not isinstance(self.options, known[self.scorer]):
            raise RecipeError(
                f"evaluate.options are of {type(self.options).__name__}, not of "
                f"evaluate.scorer = {self.scorer!r}; set the scorer again with its own keys"
            )
        return self.options
