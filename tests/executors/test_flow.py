"""Which jobs and units can be done now."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from glit.pipeline.executors.flow import JobFlow
from glit.pipeline.executors.protocols import Job, Resources
from glit.stages import all_steps
from glit.stages.flow import make_flow


@dataclass(frozen=True)
class Unit:
    index: int


@dataclass(frozen=True)
class Named:
    name: str
    needs: Resources = field(default_factory=lambda: Resources(memory_bytes=1))
    loads: str = ""


def job(name, place="cpu", units=range(3), after=()):
    task = Named(name, Resources(memory_bytes=1, place=place))
    return Job(task=task, units=[Unit(index) for index in units], after=after)


def names(jobs):
    return [each.task.name for each in jobs]


def finish(flow, each):
    for unit in list(flow.ready(each)):
        flow.done(each, flow.ready(each).popleft())
        assert unit
    assert not flow.waits(each)
    flow.end(each)


def test_in_one_place_one_after_the_other():
    caption, split, propose = flow_of = [
        job("caption"),
        job("split", after=("caption",)),
        job("propose"),
    ]
    flow = JobFlow(flow_of)
    assert names(flow.beginning()) == ["caption"]
    assert names(flow.beginning()) == []
    finish(flow, caption)
    assert names(flow.beginning()) == ["split"]
    finish(flow, split)
    assert names(flow.beginning()) == ["propose"]
    finish(flow, propose)
    assert flow.beginning() == []


def test_in_two_places_a_unit_goes_on_when_it_can():
    caption, split = job("caption", "cuda"), job("split", after=("caption",))
    propose, score = job("propose", "cuda"), job("score", "cuda", after=("caption", "propose"))
    flow = JobFlow([caption, split, propose, score])
    assert names(flow.beginning()) == ["caption"]
    flow.done(caption, flow.ready(caption).popleft())
    assert names(flow.beginning()) == ["split"]
    assert list(flow.ready(split)) == [Unit(0)]
    assert flow.waits(split)
    finish(flow, caption)
    assert names(flow.beginning()) == ["propose"]
    assert list(flow.ready(split)) == [Unit(0), Unit(1), Unit(2)]


def test_captions_of_a_server_and_regions_at_the_same_time():
    flow = JobFlow([job("caption", "server"), job("split", after=("caption",)), job("propose")])
    assert names(flow.beginning()) == ["caption", "propose"]


def test_what_was_done_before_is_not_waited_for():
    flow = JobFlow(
        [job("caption", "cuda", units=[2]), job("split", units=[0, 2], after=("caption",))]
    )
    found = flow.beginning()
    assert names(found) == ["caption", "split"]
    assert list(flow.ready(found[1])) == [Unit(0)]


def test_a_job_without_units_is_told_of_in_its_place():
    caption = job("caption")
    flow = JobFlow([job("ingest", units=[]), caption, job("split", units=[], after=("caption",))])
    assert names(flow.beginning()) == ["ingest", "caption", "split"]


REAL = make_flow(all_steps())
STAGES = tuple(REAL.stages)
PLACES = st.sampled_from(["cpu", "cuda", "server"])


@given(
    places=st.fixed_dictionaries(
        {name: PLACES if name in ("caption", "propose", "score") else st.just("cpu")
         for name in STAGES}
    ),
    missing=st.fixed_dictionaries(
        {name: st.sets(st.integers(0, 3)) for name in STAGES}
    ),
    data=st.data(),
)  # fmt: skip
def test_the_real_flow_comes_to_an_end_whatever_is_done_and_where(places, missing, data):
    jobs = [
        job(name, places[name], sorted(missing[name]), after=REAL.upstream[name]) for name in STAGES
    ]
    flow, at_work, done = JobFlow(jobs), [], set()
    while True:
        for each in flow.beginning():
            if each.units:
                assert all(o.task.needs.place != each.task.needs.place for o in at_work)
                at_work.append(each)
        if not at_work:
            break
        able = [each for each in at_work if flow.ready(each)]
        assert able or any(not flow.waits(each) for each in at_work)
        if able:
            each = data.draw(st.sampled_from(able))
            unit = flow.ready(each).popleft()
            assert all(
                (name, unit.index) in done or unit.index not in missing[name] for name in each.after
            )
            done.add((each.task.name, unit.index))
            flow.done(each, unit)
        for each in [e for e in at_work if not flow.ready(e) and not flow.waits(e)]:
            at_work.remove(each)
            flow.end(each)
    assert done == {(name, index) for name, indices in missing.items() for index in indices}
