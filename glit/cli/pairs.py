"""``glit pairs``: judge pairs in a browser, calibrate on the verdicts, certify, correct by hand."""

from __future__ import annotations

import getpass
import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glit import api
from glit.cli.derived import command, command_of
from glit.cli.options import progress_bar
from glit.errors import UserError
from glit.plain import as_plain
from glit.runtime.terminal import Console, visible

if TYPE_CHECKING:
    from glit.curate.certified import Outcome
    from glit.review.corrections.precision import Precision
    from glit.runtime.local_server import Site

pairs_command = typer.Typer(add_completion=False, no_args_is_help=True)


@pairs_command.callback()
def _pairs() -> None:
    """Judge and correct pairs by eye; certify a dataset; calibrate its rule."""


@pairs_command.command("label")
@command
def label_command(
    *,
    dataset: str,
    verdicts: Path,
    num: int = 100,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    by: str = "",
    settle: Annotated[bool, typer.Option("--settle/--no-settle")] = False,
    judged: Path | None = None,
    port: int = 0,
) -> None:
    """Show pairs in a browser on this machine and record your verdicts. Ctrl-C ends it.

    If the file is a plan of glit pairs certify, the plan chooses what is shown, and --by says who
    judges.

    Args:
        verdicts: the JSON Lines file of your verdicts; one line per answer.
        num: number of pairs, one per image.
        seed: seed for choosing the pairs.
        by: your name. Default: your login name.
        settle: of an audit, show the items on which people disagree, and settle them.
        judged: of an audit of repairs, the opinions that propose them.
        port: the port; 0 takes a free one.
    """
    from glit.dataset.reader import Dataset
    from glit.review.label.audit_server import AuditQuestions
    from glit.review.label.server import LabelSite, PairQuestions
    from glit.verdicts.record import is_audit

    opened = Dataset(dataset)
    if is_audit(verdicts):
        name = by.strip() or _login()
        audit = AuditQuestions(opened, verdicts, by=name, judged=judged, settle=settle)
        after = f"see what they prove: {_command('certify', dataset, verdicts, judged)}"
        _serve(LabelSite(audit), port, what=audit.what, after=after)
        return
    if settle:
        raise UserError(f"--settle: {verdicts} is no audit; glit pairs certify begins one")
    questions = PairQuestions(opened, verdicts, num=num, seed=seed)
    after = f"verdicts are in {verdicts}; glit pairs calibrate uses them"
    _serve(LabelSite(questions), port, what=f"{len(questions)} pairs", after=after)


def _serve(site: Site, port: int, *, what: str, after: str) -> None:
    """Serve a page until Ctrl-C."""
    from glit.runtime.local_server import address_of, loopback_server

    console = Console(stderr=True, highlight=False)
    with loopback_server(site, port=port) as server:
        console.print(f"{what} at {address_of(server)} (Ctrl-C when done)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print(after)


@pairs_command.command("calibrate")
@command_of(api.calibrate)
def calibrate_command(
    *,
    dataset: str,
    verdicts: Annotated[Path, typer.Option()],
    output: Annotated[Path, typer.Option("-o")],
    as_json: bool = False,
    **given: Any,
) -> None:
    """Fit pair probabilities to your verdicts, for the dataset's rule or another one.

    Args:
        output: the calibration file to write.
    """
    from glit.errors import InputError

    report = api.calibrate(dataset, verdicts, **given)
    kept = json.dumps(report.calibration.as_dict(), indent=2, sort_keys=True)
    try:
        output.write_text(kept + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"-o {output}: {error.strerror or error}") from error
    if as_json:
        print(json.dumps({**asdict(report), "precision": report.precision.as_json()}))
        return
    for name, quality in (("pairs", report.pairs), ("sentences", report.sentences)):
        if quality is None:
            print(f"{name}: no sentence was judged false, so support is not fitted")
            continue
        print(
            f"{name}: {quality.right} of {quality.cases} right; on verdicts held back: average "
            f"precision {quality.average_precision:.3f}, {quality.removed:.0%} of the wrong "
            f"removed at 95 % of the right kept, calibration error {quality.calibration_error:.3f}"
        )
    if report.left_out:
        print(f"{report.left_out} verdicts are of regions that this rule does not choose")
    _print_precision(report.precision)
    print(f"wrote {output}; use it: --set pair.calibration={output}")


@pairs_command.command("judge")
@command_of(api.judge)
def judge_command(
    *,
    dataset: str,
    judged: Annotated[Path, typer.Option()],
    of: str,
    num: int | None,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Ask a vision-language model whether pairs are right. Run it again to resume.

    Its opinions are kept apart from people's verdicts; glit pairs certify --judged needs fewer
    verdicts with them.
    """
    with progress_bar(quiet=quiet or as_json) as progress:
        progress.begin("judge", total=num or 0, done=0, drops=False)
        found = api.judge(dataset, judged, of=of, num=num, report=progress.advance, **given)
    counts = Counter(each.verdict for each in found.judged.of.values())
    if as_json:
        said = {"asked": found.asked, "failed": found.failed, "verdicts": counts}
        print(json.dumps({**said, "consistency": found.judged.consistency}))
        return
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    print(f"{judged}: {len(found.judged.of)} {of} judged ({told})")
    if found.judged.note:
        print(found.judged.note)
    if found.judged.consistency is not None:
        print(f"of questions asked twice {found.judged.consistency:.0%} got the same verdict")
    if found.failed:
        print(f"{found.failed} questions got no usable answer; run it again to ask them again")


@pairs_command.command("certify")
@command_of(api.certify)
def certify_command(
    *,
    dataset: str,
    verdicts: Annotated[list[Path], typer.Option()],
    seed: Annotated[int | None, typer.Option(min=0)],
    judged: Path | None,
    output: Path | None,
    quiet: bool = False,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Prove that few pairs are wrong, from verdicts on some of them.

    The first call writes a plan into the file of verdicts; glit pairs label then asks for the
    verdicts; the next calls print what they prove.
    """
    with progress_bar(quiet=quiet or as_json or output is None) as progress:
        found = api.certify(
            dataset, verdicts, seed=seed, judged=judged, output=output,
            progress=progress, **given,
        )  # fmt: skip
    if as_json:
        print(json.dumps(as_plain(found)))
        return
    for line in _outcome_lines(found, dataset, verdicts[0], judged, output):
        print(visible(line))


def _outcome_lines(
    found: Outcome, dataset: str, verdicts: Path, judged: Path | None, output: Path | None
) -> Iterator[str]:
    plan, claim = found.plan, found.plan.claim
    shown = judged if claim.of == "repairs" else None  # others are shown without opinions
    if found.is_new:
        known = (
            f"; about {plan.expected} are enough if the dataset's probabilities are true"
            if plan.expected
            else ""
        )
        yield f"{verdicts}: plan to judge {plan.verdicts} of {plan.items:,} {claim.of}{known}"
        yield f"judge them: {_command('label', dataset, verdicts, shown)}"
        return
    if found.people:
        yield f"{found.judged} judged, {found.wrong} wrong, by {', '.join(found.people)}"
    if found.out_of_turn:
        yield f"{found.out_of_turn} verdicts are ahead of the plan's order and do not count yet"
    agreement = found.agreement
    if agreement.items:
        disputed = len(agreement.disputed)
        kappa = "" if agreement.kappa is None else f" (Cohen's kappa {agreement.kappa:.2f})"
        yield f"{agreement.items} judged by two or more{kappa}, {disputed} of them disputed"
        if disputed:
            settle = f"{_command('label', dataset, verdicts, shown)} --settle"
            yield f"disputed ones count as wrong; settle them: {settle}"
    if (made := found.certificate) is not None:
        yield f"proved, to be quoted: {made.claim}"
        yield (
            f"  by the same verdicts, not to be quoted: {made.estimate:.1%} wrong, between "
            f"{made.at_least:.1%} and {made.at_most:.1%}"
        )
    if found.not_proved:
        yield f"not proved: {found.not_proved}" if made is None else found.not_proved
    if output is not None:
        check = shlex.join(["glit", "verify", str(output)])
        yield f"wrote {output}; {check} computes its certificate again"
    elif made is not None and shown is not None:
        yield f"take the repairs: {_command('apply', dataset, verdicts, judged)} -o NEW"
    elif made is not None:
        again = _command("certify", dataset, verdicts, judged)
        yield f"write the dataset with its certificate: {again} -o NEW"


def _command(name: str, dataset: str, verdicts: Path, judged: Path | None = None) -> str:
    opinions = [] if judged is None else ["--judged", str(judged)]
    return shlex.join(["glit", "pairs", name, dataset, "--verdicts", str(verdicts), *opinions])


@pairs_command.command("correct")
@command
def correct_command(
    *,
    dataset: str,
    corrections: Path,
    by: str = "",
    where: str = "",
    port: int = 0,
    image_root: str = "",
) -> None:
    """Open a page on this machine to correct boxes, sentences and pairs. Ctrl-C ends it.

    Args:
        corrections: the JSON Lines file of corrections; one line per step.
        by: your name. Default: your login name.
        where: show only samples that meet this SQL condition.
        port: the port; 0 takes a free one.
    """
    from glit.dataset.reader import Dataset
    from glit.review.corrections.server import CorrectSite, Samples

    opened = Dataset(dataset, image_root=image_root)
    samples = Samples(opened, corrections, by=by.strip() or _login(), where=where)
    if samples.journal.cut:
        print(
            f"{corrections}: removed an unfinished last line; its step was not saved",
            file=sys.stderr,
        )
    after = f"corrections are in {corrections}; glit pairs apply writes the corrected dataset"
    what = f"{len(samples)} samples, {samples.num_right()} of them right so far,"
    _serve(CorrectSite(samples), port, what=what, after=after)


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise UserError("--by: this machine does not know your name; give one") from error


@pairs_command.command("apply")
@command_of(api.apply_corrections)
def apply_command(
    *, dataset: str, output: str, quiet: bool = False, as_json: bool = False, **given: Any
) -> None:
    """Write the dataset with corrections, and print how many pairs people left as right."""
    with progress_bar(quiet=quiet or as_json) as progress:
        applied = api.apply_corrections(dataset, output, progress=progress, **given)
    for warning in applied.warnings:
        print(visible(warning), file=sys.stderr)
    if as_json:
        print(json.dumps({**asdict(applied), "precision": applied.precision.as_json()}))
        return
    done = ", ".join(f"{number} {kind}" for kind, number in applied.counts.items() if number)
    said = f"{applied.samples} samples ({done or 'nothing changed'})"
    print(f"{said}, {applied.dropped} dropped: {output}")
    _print_precision(applied.precision)


def _print_precision(found: Precision) -> None:
    from glit.review.corrections.precision import precision_lines

    for line in precision_lines(found):
        print(visible(line))
