"""LISM and FLISM by glit's own stages, in this process: propose, score, pair, pack.

What a build does besides is left out on both sides: ingest (which decodes every image once to
check it), captions, sentences, and the tables between the stages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from glit.bench.harness import Row
from glit.bench.lism_flism.columns import BenchImages, ColumnJob, PartClock, TimedSource, Way
from glit.bench.lism_flism.fixed import FixedDetector
from glit.bench.scenes import XYXY
from glit.data.records import Drop, Sample
from glit.data.schema import dataset_schema
from glit.models.tokenizer import tokenizer_hash
from glit.pipeline.executors.process import prepare_own_process
from glit.stages.base import Outcome
from glit.stages.pack import PackConfig, write_groups
from glit.stages.pair import PairConfig, PairStage
from glit.stages.propose import DetectRegions, ProposeConfig
from glit.stages.score import ScoreConfig, ScoreStage


class InGlit(Way):
    """A method that runs over images by the stages of a build."""

    def __init__(self, job: ColumnJob) -> None:
        import torch

        prepare_own_process(for_model=True)
        torch.set_num_threads(job.threads)
        self._job = job
        config, matching = job.recipe.of(ProposeConfig), job.recipe.of(ScoreConfig)
        proposer, matcher = DetectRegions.backend(config), ScoreStage.backend(matching)
        config, matching = proposer.settled(config), matcher.settled(matching)
        detector = proposer.make(config, job.proposer)
        if job.num_fixed is not None:
            source = "yolos" if job.column.method == "flism" else "sam"
            detector = FixedDetector(detector, number=job.num_fixed, source=source)
        self._clock = PartClock()
        made: Any = matcher.make(matching, job.matcher)
        made.embed_regions = self._timed(made.embed_regions)
        self._propose = DetectRegions(config, detector)
        self._score = ScoreStage(matching, made)
        self._pair = PairStage(job.recipe.of(PairConfig).make_pairing(None))
        tokenizer = {
            "name": job.matcher.name,
            "sha256": tokenizer_hash(job.matcher.path),
            "context": job.recipe.split.context,
        }
        self._schema = dataset_schema(tokenizer=tokenizer)

    def _timed(self, embed_regions: Callable[..., Any]) -> Callable[..., Any]:
        """The cutting and encoding of crops, on the clock."""

        def timed(*given: Any) -> Any:
            with self._clock.part("encode"):
                return embed_regions(*given)

        return timed

    def run(self, batch: BenchImages) -> Row:
        """All images of a batch as one chunk."""
        clock = self._clock = PartClock()
        source = TimedSource(batch.store, clock)
        started = time.perf_counter()
        proposed = list(self._propose.process(batch.samples, source))
        at_match, wait = time.perf_counter(), clock.seconds["wait"]
        scored = _good(self._score.process(_good(proposed), source))
        good = _good(self._pair.process(scored, source))
        at_write, wait_all = time.perf_counter(), clock.seconds["wait"]
        self._job.scratch.mkdir(parents=True, exist_ok=True)
        path = self._job.scratch / "train-00000-of-00001.parquet"
        pack = self._job.recipe.of(PackConfig)
        deque(
            write_groups(good, path, images=batch.store, config=pack, schema=self._schema),
            maxlen=0,
        )
        ended, encode = time.perf_counter(), clock.seconds["encode"]
        return {
            "parts_s": {
                "wait": wait_all,
                "propose": at_match - started - wait,
                "encode": encode,
                "match": at_write - at_match - (wait_all - wait) - encode,
                "write": ended - at_write,
            },
            "num_regions": sum(len(sample.regions or ()) for sample in good),
            "num_dropped": len(batch.samples) - len(good),
            "choices": _choices(batch.samples, good),
        }


def _good(outcomes: Iterable[Outcome]) -> list[Sample]:
    return [outcome for outcome in outcomes if not isinstance(outcome, Drop)]


def _choices(
    samples: Sequence[Sample], done: Sequence[Sample]
) -> tuple[tuple[XYXY | None, ...], ...]:
    """The chosen boxes of all samples; a dropped one has none."""
    boxes = {
        (sample.sample_id, pair.sentence): (sample.regions or ())[pair.region].box.xyxy
        for sample in done
        for pair in sample.pairs or ()
        if not pair.global_wins
    }
    return tuple(
        tuple(boxes.get((each.sample_id, n)) for n in range(len(each.sentences or ())))
        for each in samples
    )
