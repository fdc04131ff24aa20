"""The pair stage hands stored scores to the rule that its table names."""

import numpy as np
import pytest
from scored import sentences

from glit.data.records import Box, Region, Sample, Scores
from glit.errors import RecipeError
from glit.pipeline.planning.recipe import load_recipe
from glit.stages.pair import PairConfig, PairStage


def sample() -> Sample:
    regions = tuple(
        Region(box=Box(x0=x, y0=0, x1=x + 1, y1=1), score=1, label="", source="yolos")
        for x in range(2)
    )
    scores = Scores(
        similarity=np.array([[0.2, 0.4], [0.9, 0.1]], dtype=np.float32),
        image_similarity=np.array([0.3, 0.95], dtype=np.float32),
    )
    return Sample(
        sample_id="0" * 64, source_path="x", width=8, height=8, num_bytes=1,
        sentences=sentences(None, None), regions=regions, scores=scores,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("argmax", [(1, 0, False), (0, 1, False)]),
        ("lism", [(0, 1, False), (1, 0, True)]),
    ],
)
def test_the_rule_of_the_recipe_chooses(rule, wanted):
    config = load_recipe("mini", overrides=[f"pair.rule={rule}"]).of(PairConfig)
    (done,) = PairStage(config.make_pairing(None)).process([sample()], None)
    assert [(p.sentence, p.region, p.global_wins) for p in done.pairs] == wanted
    row = PairStage.row(done)
    assert PairStage.with_row(sample(), row).pairs == done.pairs


def test_a_rule_that_is_not_there_names_the_nearest():
    with pytest.raises(RecipeError, match=r"\[pair\] rule: found 'argmin'.*did you mean 'argmax'"):
        load_recipe("mini", overrides=["pair.rule=argmin"])
