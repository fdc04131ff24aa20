"""Every task and every scorer on a pretended GPU measures what it measures on the CPU."""

from __future__ import annotations

import pytest
from pretend_cuda import counting, pretend_cuda

from glit.evaluate.config import EvaluateConfig
from glit.evaluate.run import evaluate
from glit.evaluate.scorers import SCORERS
from glit.evaluate.tasks import TASKS

PER_BATCH = 1
"""How often a GPU is waited for; may only go down."""
BATCH_SIZE, NUM_IMAGES = 4, 12


def measured(tiny_clip, dataset, device, task, **changes):
    config = EvaluateConfig(
        batch_size=BATCH_SIZE, num_workers=0, device=device, chunk_size=5, **changes
    )
    (result,) = evaluate(task, [str(tiny_clip)], str(dataset), config)
    return result.metrics


@pytest.mark.parametrize(
    "task, scorer",
    [(task, "cosine") for task in TASKS]
    + [(task, scorer) for task in ("retrieval", "robustness") for scorer in SCORERS],
)
def test_a_task(tiny_clip, make_dataset, task, scorer) -> None:
    dataset = make_dataset(NUM_IMAGES)
    wanted = measured(tiny_clip, dataset, "cpu", task, scorer=scorer)
    with pretend_cuda(), counting() as counts:
        found = measured(tiny_clip, dataset, "cuda", task, scorer=scorer)
    assert found == pytest.approx(wanted, abs=1e-6)
    # images, regions, captions and captions with a false sentence are encoded in batches
    assert counts.num_syncs <= PER_BATCH * 2 * (NUM_IMAGES / BATCH_SIZE + 2), counts


def test_all_pairs_are_localised(tiny_clip, make_dataset) -> None:
    dataset = make_dataset(NUM_IMAGES)
    wanted = measured(tiny_clip, dataset, "cpu", "localize", localize_pairs="all")
    with pretend_cuda():
        assert measured(tiny_clip, dataset, "cuda", "localize", localize_pairs="all") == wanted
