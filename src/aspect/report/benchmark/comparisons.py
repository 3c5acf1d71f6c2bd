"""Is an entry ahead of others, or was it luck? Paired over splits, corrected for many rivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from aspect.attacks.perturbation import Perturbation
from aspect.evaluation.significance import PairedTest, holm, paired_test
from aspect.experiment.record import Record
from aspect.experiment.spec import SplitName
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.names import perturbation_name, table_name
from aspect.report.benchmark.score_cells import Footnotes
from aspect.report.benchmark.scores import Place, Scores
from aspect.report.tables import Cell, Line, Table, counted

__all__ = [
    "FEWEST_TO_DECIDE",
    "Comparison",
    "Question",
    "compare",
    "find_head",
    "significance_tables",
    "undecidable",
]

HIGHEST_CHANCE = 0.05
FEWEST_SPLITS = 2  # one pair has no spread
FEWEST_TO_DECIDE = 6  # splits or graphs; n signs give no chance below 2 ** (1 - n)
OVERALL = ("won / tied / lost", "mean over graphs")
TEXAS_AGAIN = {"texas", "cornell_old"}  # the same nodes and labels under other edges
TOO_FEW = f"No test: fewer than {FEWEST_TO_DECIDE} splits in common."
REPEATED = "cornell_old has the nodes of texas, so that the mean over graphs leaves it out."

# Of test to training nodes, where records do not tell. geom-gcn's published splits are 48/32/20
# and those of Platonov et al. 50/25/25; the larger ratio is the cautious one.
TEST_TO_TRAIN: dict[SplitName, float] = {
    "class-balanced": 1 / 3,
    "random": 1 / 3,
    "published": 1 / 2,
}
# Class-balanced training sets that took a class whole are smaller than 60%: 46% on texas (0.72).
WHOLE_CLASSES_TO_TRAIN = 3 / 4


@dataclass(frozen=True)
class Question:
    """Whether the first scores are above the second, on the same splits of one graph."""

    first: Scores | None
    second: Scores | None

    def ask(self, fewest_splits: int = FEWEST_SPLITS) -> PairedTest | None:
        """The paired test over the splits that both have; None where there are too few."""
        if self.first is None or self.second is None:
            return None
        ours, theirs = self.first.by_split(), self.second.by_split()
        common = sorted(ours.keys() & theirs.keys())
        if len(common) < fewest_splits:
            return None
        return paired_test(
            [ours[split] for split in common],
            [theirs[split] for split in common],
            test_to_train=self._test_to_train,
        )

    @property
    def _test_to_train(self) -> float:
        assert self.first is not None
        scores = self.first.by_seed_and_split.values()
        told = [each.test_to_train for each in scores if each.test_to_train is not None]
        if told:
            return max(told)
        splits = self.first.place.splits
        if splits == "class-balanced" and any(each.missing_in_test for each in scores):
            return WHOLE_CLASSES_TO_TRAIN
        return TEST_TO_TRAIN[splits]


@dataclass(frozen=True)
class Comparison:
    """An answer, and how it stands among all that were asked for one table."""

    test: PairedTest  # difference = first - second
    p_value: float  # see `compare`

    @property
    def is_decided(self) -> bool:
        """Whether luck is an unlikely explanation, whoever is ahead."""
        return self.p_value < HIGHEST_CHANCE

    @property
    def cell(self) -> Cell:
        """Difference, interval and corrected chance."""
        return Cell(
            self.test.difference,
            low=self.test.low,
            high=self.test.high,
            p_value=self.p_value,
            decided=self.is_decided,
        )


def compare(
    questions: Sequence[Question], fewest_splits: int = FEWEST_SPLITS
) -> list[Comparison | None]:
    """All answers of one table, corrected together; None where too few splits are shared.

    Holm's correction is applied to the t test, which is already widened for overlapping splits.
    The sign-flip test must agree, as it is: ten splits give it nothing below 0.002, so that
    no lead of any size could stand a correction for a table of thirty comparisons.
    """
    tests = [question.ask(fewest_splits) for question in questions]
    corrected = iter(holm([test.corrected_p_value for test in tests if test is not None]))
    return [
        None if test is None else Comparison(test, max(next(corrected), test.p_value))
        for test in tests
    ]


def find_head(collection: Collection) -> str:
    """The method that others are held against: `aspect`, else a group's head, else the first."""
    groups = [cell.group for cell in collection.entries.values() if cell.group]
    wanted = ["aspect", *groups, *collection.methods]
    return next(name for name in wanted if name in collection.methods)


@dataclass(frozen=True)
class Contest:
    """The head against every other method, on clean graphs or under one perturbation."""

    collection: Collection
    splits: SplitName
    perturbation: Perturbation | None

    @property
    def graphs(self) -> list[str]:
        """Those that the head has a record of."""
        return self.collection.columns(self.splits, self.perturbation, [find_head(self.collection)])

    @property
    def rivals(self) -> list[str]:
        """All others there."""
        rows = self.collection.rows(self.splits, self.perturbation, self.graphs)
        return [each for each in rows if each != find_head(self.collection)]

    @cached_property
    def answers(self) -> list[list[Comparison | None]]:
        """By rival and graph; none of them where so few splits are there that luck always may."""
        head, graphs = find_head(self.collection), self.graphs
        questions = [
            Question(self._find(head, graph), self._find(rival, graph))
            for rival in self.rivals
            for graph in graphs
        ]
        found = compare(questions, FEWEST_TO_DECIDE)
        return [found[i * len(graphs) : (i + 1) * len(graphs)] for i in range(len(self.rivals))]

    @property
    def count(self) -> int:
        """Comparisons that were made."""
        return sum(answer is not None for own in self.answers for answer in own)

    def _find(self, entry: str, graph: str) -> Scores | None:
        return self.collection.find(Place(entry, graph, self.splits, self.perturbation))


def _contests(collection: Collection) -> list[Contest]:
    found = [
        Contest(collection, splits, perturbation)
        for splits in collection.kinds
        for perturbation in (None, *collection.perturbations(splits))
    ]
    return [contest for contest in found if contest.rivals]


def significance_tables(records: Sequence[Record] | Collection) -> list[Table]:
    """The head against every other method, wherever there are splits enough to decide anything."""
    return [_table(contest) for contest in _contests(collect(records)) if contest.count]


def undecidable(records: Sequence[Record] | Collection) -> list[str]:
    """Where methods could be compared, but on too few splits: `random 5% (poison)`."""
    return [
        _where(contest.perturbation) if contest.perturbation else "clean graphs"
        for contest in _contests(collect(records))
        if not contest.count
    ]


def _table(contest: Contest) -> Table:
    collection, perturbation = contest.collection, contest.perturbation
    columns, footnotes = tuple(collection.graphs[each] for each in contest.graphs), Footnotes()
    cells = _cells(contest.answers, columns, footnotes)
    lines = [
        Line(collection.title(rival), collection.entries[rival].note, own)
        for rival, own in zip(contest.rivals, cells, strict=True)
    ]
    attack = f"-{perturbation_name(perturbation)}" if perturbation else ""
    where = f"under {_where(perturbation)}" if perturbation else ""
    return Table(
        table_name(collection, f"significance{attack}", contest.splits),
        f"How far {collection.title(find_head(collection))} is ahead {where or 'on clean graphs'}, "
        "in points of strict accuracy; with a 95% interval, and p after Holm over "
        f"{counted(contest.count, 'comparison')}. † decided at 5%.",
        (*columns, *OVERALL),
        tuple(lines),
        head="against",
        notes=(*footnotes.notes, *([REPEATED] if set(columns) >= TEXAS_AGAIN else [])),
    )


def _where(perturbation: Perturbation) -> str:
    alone = "" if perturbation.features else ", edges alone"
    return f"{perturbation.label} ({perturbation.mode}{alone})"


def _cells(
    by_rival: Sequence[Sequence[Comparison | None]], graphs: Sequence[str], footnotes: Footnotes
) -> list[tuple[Cell, ...]]:
    """One row per rival: graph by graph, then what they say together."""
    known = [answer.test.count for own in by_rival for answer in own if answer is not None]
    most = max(known, default=0)
    return [
        (*(_cell(answer, most, footnotes) for answer in own), _tally(own), overall)
        for own, overall in zip(by_rival, _overall(by_rival, graphs), strict=True)
    ]


def _cell(answer: Comparison | None, most: int, footnotes: Footnotes) -> Cell:
    """It is said where fewer splits could be paired than elsewhere in the table."""
    if answer is None:
        return Cell(footnote=footnotes.number(TOO_FEW))
    count = answer.test.count
    sentence = f"Over the {count} splits that both have." if count < most else ""
    return replace(answer.cell, footnote=footnotes.number(sentence))


def _tally(answers: Sequence[Comparison | None]) -> Cell:
    """Graphs won, tied and lost; ties are undecided."""
    known = [answer for answer in answers if answer is not None]
    won = sum(answer.is_decided and answer.test.difference > 0 for answer in known)
    lost = sum(answer.is_decided and answer.test.difference < 0 for answer in known)
    return Cell(word=f"{won} / {len(known) - won - lost} / {lost}")


def _overall(by_rival: Sequence[Sequence[Comparison | None]], graphs: Sequence[str]) -> list[Cell]:
    """The mean difference over graphs; with enough of them also its chance, as in `compare`."""
    left_out = "cornell_old" if set(graphs) >= TEXAS_AGAIN else None
    means = [
        [
            each.test.difference
            for each, graph in zip(own, graphs, strict=True)
            if each is not None and graph != left_out
        ]
        for own in by_rival
    ]
    # Other graphs share no nodes, so nothing is widened.
    tests = [
        paired_test(own, [0.0] * len(own), test_to_train=0.0)
        for own in means
        if len(own) >= FEWEST_TO_DECIDE
    ]
    corrected = holm([test.corrected_p_value for test in tests])
    p_values = iter([max(p, test.p_value) for p, test in zip(corrected, tests, strict=True)])
    cells = []
    for own in means:
        mean = sum(own) / len(own) if own else None
        if len(own) < FEWEST_TO_DECIDE:
            cells.append(Cell(mean))
            continue
        p_value = next(p_values)
        cells.append(Cell(mean, p_value=p_value, decided=p_value < HIGHEST_CHANCE))
    return cells
