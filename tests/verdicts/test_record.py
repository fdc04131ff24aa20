"""Records of audits: what is refused, what survives a full disk, and how people agree."""

from __future__ import annotations

import json

import pytest

from glit.errors import InputError
from glit.verdicts.claims import MOST_VERDICTS, Part, verdicts_of_test
from glit.verdicts.record import AuditPlan, Claim, Said, append, begin, is_audit, read_audit

ID = "ab" * 32


def plan(**changes) -> AuditPlan:
    return AuditPlan(
        claim=Claim(**changes), parts=(Part(most_predicted=1.0, verdicts=100),), typical=0.1,
        verdicts=100, items=500, items_sha256="0" * 64,
    )  # fmt: skip


def said(sentence: int, verdict, by: str = "ann", **more) -> Said:
    return Said(sample_id=ID, sentence=sentence, region=1, verdict=verdict, by=by, **more)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    begin(path, plan())
    return path


def test_what_is_appended_is_read_again(file):
    append(file, said(0, "right"))
    append(file, said(1, "none", by="bo"))
    found = read_audit([file])
    assert found.plan == plan() and is_audit(file)
    assert found.people == ("ann", "bo") and len(found) == 2
    assert not found.is_wrong((ID, (0, 1))) and found.is_wrong((ID, (1, 1)))
    with pytest.raises(InputError, match="cannot be written"):
        begin(file, plan())


def test_a_line_that_was_not_finished_is_none_and_the_next_one_is_whole(file):
    append(file, said(0, "right"))
    with file.open("ab") as stream:
        stream.write(b'{"sample_id": "abab')
    assert len(read_audit([file])) == 1
    append(file, said(1, "wrong"))
    assert len(read_audit([file])) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"verdict": "maybe"}, "found 'maybe'"),
        ({"sentence": None}, "want sentence and region"),
        ({"region": -1}, "region"),
        ({"phrase": 3}, "want sentence and region"),
        ({"sentence": 1 << 40}, "sentence"),
        ({"extra": 1}, "unknown key 'extra'"),
    ],
)
def test_lines_that_are_none_are_named(file, line, message):
    values = {"sample_id": ID, "sentence": 0, "region": 1, "verdict": "right", "by": "ann"} | line
    with file.open("a") as stream:
        stream.write(json.dumps({k: v for k, v in values.items() if v is not None}) + "\n")
    with pytest.raises(InputError, match=f"verdicts.jsonl, line 2: .*{message}"):
        read_audit([file])


def test_two_answers_of_one_person_are_refused_unless_one_replaces_the_other(file):
    append(file, said(0, "right"))
    append(file, said(0, "right"))
    append(file, said(0, "wrong", instead_of="right"))
    assert read_audit([file]).is_wrong((ID, (0, 1)))
    append(file, said(0, "right"))
    with pytest.raises(InputError, match="line 5: ann said 'wrong' of the same item before"):
        read_audit([file])


def test_disputed_items_are_wrong_until_they_are_settled(file):
    for sentence, (a, b) in enumerate(
        [("right", "right"), ("right", "wrong"), ("none", "false"), ("right", "right")]
    ):
        append(file, said(sentence, a))
        append(file, said(sentence, b, by="bo"))
    found = read_audit([file]).agreement()
    assert found.items == 4 and found.disputed == ((ID, (1, 1)),)
    assert found.kappa == pytest.approx(0.5)  # agreed .75, by chance .5
    assert read_audit([file]).is_wrong((ID, (1, 1)))
    append(file, said(1, "right", by="ann", settles=True))
    settled = read_audit([file])
    assert not settled.is_wrong((ID, (1, 1)))
    assert settled.agreement().disputed == () and settled.agreement().kappa == found.kappa
    again = settled.only([(ID, (1, 1)), (ID, (0, 1))])
    assert len(again) == 2 and not again.is_wrong((ID, (1, 1)))


@pytest.mark.parametrize(("unsure", "wrong"), [("wrong", True), ("right", False)])
def test_whoever_cannot_tell_counts_as_the_plan_says(tmp_path, unsure, wrong):
    file = tmp_path / "v.jsonl"
    begin(file, plan(unsure=unsure))
    append(file, said(0, "unsure"))
    assert read_audit([file]).is_wrong((ID, (0, 1))) is wrong


def test_files_of_several_people_are_of_one_plan(file, tmp_path):
    other = tmp_path / "bo.jsonl"
    begin(other, plan())
    append(file, said(0, "right"))
    append(other, said(0, "wrong", by="bo"))
    assert read_audit([file, other]).agreement().items == 1
    third = tmp_path / "third.jsonl"
    begin(third, plan(error=0.1))
    with pytest.raises(InputError, match=r"third\.jsonl: another plan than that of"):
        read_audit([file, third])


@pytest.mark.parametrize(
    "first",
    [
        b"", b"\xff\xfe", b"[]", b'{"sample_id": "a"}', b"[" * 100_000,
        b'{"format": "glit-audit", "schema_version": 2}',
        b'{"format": "glit-audit", "schema_version": 1, "claim": {"error": NaN}}',
        b'{"format": "glit-audit", "schema_version": 1, "claim": {"error": 2}}',
    ],
)  # fmt: skip
def test_other_files_are_no_audit(tmp_path, first):
    file = tmp_path / "v.jsonl"
    file.write_bytes(first + b"\n")
    with pytest.raises(InputError, match=r"v\.jsonl: not the record of an audit"):
        read_audit([file])


def test_a_verdict_whose_line_an_editor_left_open_stays(file):
    append(file, said(0, "right"))
    append(file, said(1, "wrong"))
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    assert len(read_audit([file])) == 2
    append(file, said(2, "none"))
    assert len(read_audit([file])) == 3 and file.read_bytes().count(b"\n") == 4


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03, 0.045])
def test_a_test_of_many_verdicts_has_the_power_that_is_said(share):
    """Scipy's exact binomial distribution is the judge."""
    binom = pytest.importorskip("scipy.stats").binom
    number = verdicts_of_test(share, 0.05, alpha=0.05)
    allowed = binom.ppf(0.05, number, 0.05) - (
        binom.cdf(binom.ppf(0.05, number, 0.05), number, 0.05) > 0.05
    )
    assert binom.cdf(allowed, number, share) >= 0.9
    fewer = number * 100 // 106
    allowed = binom.ppf(0.05, fewer, 0.05) - 1
    assert fewer < 57 or binom.cdf(allowed, fewer, share) < 0.92


def test_nearly_the_limit_takes_more_verdicts_than_anybody_gives():
    assert verdicts_of_test(0.0495, 0.05, alpha=0.05) == MOST_VERDICTS
    assert verdicts_of_test(0.045, 0.05, alpha=0.05) < verdicts_of_test(0.047, 0.05, alpha=0.05)
