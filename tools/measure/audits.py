"""Simulate audits: how often claims are false, and how many verdicts they want.

python -m tools.measure.audits [--picture docs/certify.svg]     the tables of docs/certify.md
python -m tools.measure.audits --scenes DATASET GROUND_TRUTH    audits of a dataset of scenes

Items are wrong or right with predictions of a known quality; each audit draws and bets as
``glit pairs certify`` does. Claims are tested where they are just false; verdicts are counted until
nine of ten audits prove "at most 5 % are wrong", and compared with the exact binomial test of
uniform draws that is as sure.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from glit import open_dataset
from glit.dataset.certificate import items_of
from glit.verdicts.bets import log_wealth
from glit.verdicts.claims import bounds, exact_at_most
from glit.verdicts.draw import Population, mixed, uncertainty, weights
from glit.verdicts.record import Claim
from tools.measure.judged_pairs import judged

ITEMS, AUDITS, ALPHA, ERROR, POWER = 20_000, 1000, 0.05, 0.05, 0.9
AUCS, CLAIMS = (0.5, 0.7, 0.9, 0.99), (0.02, 0.05, 0.10)
_SHOWN = 0.03
"""The share of wrong items in the picture."""
KINDS = (
    ("calibrated", 0.99), ("calibrated", 0.9), ("calibrated", 0.7), ("calibrated", 0.5),
    ("of another level", 0.9), ("constant", 0.5), ("reversed", 0.9),
)  # fmt: skip


def population(predicted: np.ndarray) -> Population:
    """Items with these predicted chances to be wrong."""
    return Population(
        key=mixed(np.arange(len(predicted), dtype=np.uint64)),
        predicted=predicted,
        weight=weights(predicted, typical=float(uncertainty(predicted).mean())),
        control=predicted,
    )


def drawn(
    share: float, kind: str, auc: float = 0.95, *, items: int = ITEMS
) -> tuple[Population, np.ndarray]:
    """Items of which a share is wrong, with predictions of a kind; and which are wrong."""
    rng = np.random.default_rng(0)
    wrong = np.zeros(items, bool)
    wrong[rng.permutation(items)[: round(share * items)]] = True
    apart = math.sqrt(2) * stats.norm.ppf(auc)
    score = rng.normal(size=items) + apart * wrong
    logit = math.log(share / (1 - share)) + apart * score - apart**2 / 2
    predicted = 1 / (1 + np.exp(-logit))
    if kind == "of another level":
        predicted = 1 / (1 + np.exp(-(0.6 * logit - 1)))
    elif kind == "reversed":
        predicted = 1 - predicted
    elif kind == "constant":
        predicted = np.full(items, share)
    return population(predicted), wrong


def proved_after(
    of: Population, wrong: np.ndarray, *, limit: float, deadline: int, most: int, audits: int
) -> np.ndarray:
    """After how many verdicts each audit proves that at most a share is wrong; inf if never."""
    orders = np.stack([of.order(seed=seed, num=most) for seed in range(audits)])
    limits = np.full(audits, limit)
    wealth = log_wealth(of, orders, wrong[orders], limit=limits, alpha=ALPHA, deadline=deadline)
    reached = wealth >= -math.log(ALPHA)
    return np.where(reached.any(1), reached.argmax(1) + 1.0, np.inf)


def exact_test(share: float) -> int:
    """Verdicts with which the exact binomial test accepts a share in nine of ten cases."""
    judged = math.ceil(math.log(ALPHA) / math.log1p(-ERROR))
    while True:
        allowed = int(stats.binom.ppf(ALPHA, judged, ERROR))
        allowed -= stats.binom.cdf(allowed, judged, ERROR) > ALPHA
        if allowed >= 0 and stats.binom.cdf(allowed, judged, share) >= POWER:
            return judged
        judged += 1


def wanted(of: Population, wrong: np.ndarray, start: int, audits: int) -> int:
    """The least planned number of verdicts by which nine of ten audits prove the claim."""
    low, high = 0, start
    while high - low > max(2, high // 50):
        middle = (low + high) // 2 if low else high
        after = proved_after(
            of, wrong, limit=ERROR, deadline=middle, most=middle, audits=audits
        )  # fmt: skip
        enough = np.isfinite(after).mean() >= POWER
        if not low and not enough:
            high = round(high * 1.5)
        elif enough:
            high, low = middle, low or 1
        else:
            low = middle
    return high


def tables() -> None:
    """Print both tables in Markdown."""
    print("| probabilities | " + " | ".join(f"AUC {auc:g}" for auc in AUCS) + " |")
    print("|---|" + "---:|" * len(AUCS))
    for kind in ("calibrated", "of another level", "reversed"):
        row = [" / ".join(_false_claims(kind, auc)) for auc in AUCS]
        print(f"| {kind} | " + " | ".join(row) + " |", flush=True)
    shares = (0.01, 0.02, 0.03, 0.04)
    exact = {share: exact_test(share) for share in shares}
    print("\n| probabilities | " + " | ".join(f"{share:.0%} wrong" for share in shares) + " |")
    print("|---|" + "---:|" * len(shares))
    print("| exact binomial test | " + " | ".join(str(exact[share]) for share in shares) + " |")
    for kind, auc in KINDS:
        row = []
        for share in shares:
            found = wanted(*drawn(share, kind, auc), exact[share], AUDITS)
            row.append(f"{found} ({found / exact[share]:.2f})")
        print(f"| {named(kind, auc)} | " + " | ".join(row) + " |", flush=True)


def _false_claims(kind: str, auc: float) -> list[str]:
    """How often claims of each of :data:`CLAIMS` that are just false are proved."""
    found = []
    for share in CLAIMS:
        of, wrong = drawn(share, kind, auc)
        after = proved_after(of, wrong, limit=share, deadline=200, most=400, audits=AUDITS)
        found.append(f"{np.isfinite(after).mean():.1%}")
    return found


def of_scenes(dataset: Path, ground_truth: Path) -> tuple[Population, np.ndarray]:
    """The pairs of a dataset of scenes, by their own probabilities; and which are wrong."""
    opened = open_dataset(dataset)
    items = items_of(opened, Claim())
    right = [each.right for each in judged(opened, ground_truth)]
    places = zip(items.row, items.first, items.second, strict=True)
    return items.population, np.array([not right[row][s, region] for row, s, region in places])


def table_of_scenes(of: Population, wrong: np.ndarray) -> None:
    """Print how often a claim that is just false is proved, with probabilities of three kinds."""
    share = float(wrong.mean())
    print(f"{len(wrong)} pairs, {share:.1%} wrong; {AUDITS} audits\n")
    print("| probabilities | proved |\n|---|---:|")
    for kind, predicted in (
        ("the dataset's", of.predicted),
        ("constant", np.full(len(wrong), share)),
        ("reversed", 1 - of.predicted),
    ):
        after = proved_after(
            population(predicted), wrong, limit=share, deadline=200, most=400, audits=AUDITS
        )
        print(f"| {kind} | {np.isfinite(after).mean():.1%} |", flush=True)


def named(kind: str, auc: float) -> str:
    """A row's name."""
    return kind if kind == "constant" else f"{kind}, AUC {auc:g}"


def draw(path: Path) -> None:
    """Draw the upper bound that nine of ten audits reach, by the number of verdicts."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "glit"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.2))
    numbers = [60, 80, 110, 150, 200, 270, 360, 480, 640, 840]
    curves = (
        ("glit, AUC 0.99", "calibrated", 0.99, "#c2410c"),
        ("glit, AUC 0.9", "calibrated", 0.9, "#0e7490"),
        ("exact binomial", "constant", 0.5, "#6b7280"),
    )
    for label, kind, auc, colour in curves:
        of, wrong = drawn(_SHOWN, kind, auc)
        plain = kind == "constant"
        found = [[_bound(of, wrong, seed, n, plain=plain) for n in numbers] for seed in range(40)]
        height = np.quantile(found, POWER, axis=0)
        axes.plot(numbers, height, color=colour, ls="--" if plain else "-", label=label)
    axes.axhline(_SHOWN, color="#9ca3af", lw=0.8)
    axes.set(xlabel="verdicts", ylabel="wrong, at most", ylim=(0, 0.14))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _bound(of: Population, wrong: np.ndarray, seed: int, number: int, *, plain: bool) -> float:
    """The upper bound of one audit after so many verdicts, which were planned."""
    order = of.order(seed=seed, num=number)
    if plain:
        return exact_at_most(int(wrong[order].sum()), number, alpha=ALPHA)
    return bounds(of, order, wrong[order], alpha=ALPHA, deadline=number).at_most


def main() -> None:
    """Measure; write the picture where one is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--scenes", type=Path, nargs=2)
    given = parser.parse_args()
    if given.scenes is not None:
        table_of_scenes(*of_scenes(*given.scenes))
        sys.exit()
    if given.picture is not None:
        draw(given.picture)
        sys.exit()
    tables()


if __name__ == "__main__":
    main()
