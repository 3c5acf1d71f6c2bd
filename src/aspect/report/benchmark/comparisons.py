"""Is an entry ahead of others, or was it luck? Paired over splits, corrected for many rivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aspect.benchmark.perturbation import Perturbation
from aspect.benchmark.record import Record, SplitName
from aspect.evaluation.significance import PairedTest, holm, paired_test
from aspect.report.benchmark.collection import Collection, collect
from aspect.report.benchmark.footnotes import Footnotes
from aspect.report.benchmark.names import perturbation_name, table_name
from aspect.report.benchmark.scores import Place, Scores
from aspect.report.tables import Cell, Line, Table

__all__ = ["Comparison", "Question", "compare", "find_head", "significance_tables"]

HIGHEST_CHANCE = 0.05
FEWEST_SPLITS = 2  # one pair has no spread
FEWEST_GRAPHS = 5  # with fewer, no pattern of signs is rare
OVERALL = ("won / tied / lost", "mean over graphs")
TEXAS_AGAIN = {"texas", "cornell_old"}  # the same nodes and labels under other edges
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

    def ask(self) -> PairedTest | None:
        """The paired test over the splits that both have; None where there are too few."""
        if self.first is None or self.second is None:
            return None
        ours, theirs = self.first.by_split(), self.second.by_split()
        common = sorted(ours.keys() & theirs.keys())
        if len(common) < FEWEST_SPLITS:
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


def compare(questions: Sequence[Question]) -> list[Comparison | None]:
    """All answers of one table, corrected together; None where too few splits are shared.

    Holm's correction is applied to the t test, which is already widened for overlapping splits.
    The sign-flip test must agree, as it is: ten splits give it nothing below 0.002, so that
    no lead of any size could stand a correction for a table of thirty comparisons.
    """
    tests = [question.ask() for question in questions]
    corrected = iter(holm([test.corrected_p_value for test in tests if test is not None]))
    return [
        None if test is None else Comparison(test, max(next(corrected), test.p_value))
        for test in tests
    ]


def find_head(collection: Collection) -> str:
    """The entry that others are held against: `aspect`, else a group's head, else the first."""
    groups = [cell.group for cell in collection.entries.values() if cell.group]
    wanted = ["aspect", *groups, *collection.entries]
    return next(name for name in wanted if name in collection.entries)


def significance_tables(records: Sequence[Record] | Collection) -> list[Table]:
    """The head against every other entry, on clean and on perturbed graphs."""
    collection = collect(records)
    tables = [
        _table(collection, splits, perturbation)
        for splits in collection.kinds
        for perturbation in (None, *collection.perturbations(splits))
    ]
    return [table for table in tables if table.lines]


def _table(collection: Collection, splits: SplitName, perturbation: Perturbation | None) -> Table:
    head = find_head(collection)
    graphs = collection.columns(splits, perturbation, [head])
    rivals = [each for each in collection.rows(splits, perturbation, graphs) if each != head]

    def place(entry: str, graph: str) -> Scores | None:
        return collection.find(Place(entry, graph, splits, perturbation))

    answers = compare(
        [Question(place(head, graph), place(each, graph)) for each in rivals for graph in graphs]
    )
    by_rival = [answers[i * len(graphs) : (i + 1) * len(graphs)] for i in range(len(rivals))]
    columns, footnotes = tuple(collection.graphs[graph] for graph in graphs), Footnotes()
    cells = _cells(by_rival, columns, footnotes)
    lines = [
        Line(collection.title(rival), collection.entries[rival].note, own)
        for rival, own in zip(rivals, cells, strict=True)
    ]
    attack = f"-{perturbation_name(perturbation)}" if perturbation else ""
    return Table(
        table_name(collection, f"significance{attack}", splits),
        _caption(collection.title(head), perturbation, sum(each is not None for each in answers)),
        (*columns, *OVERALL),
        tuple(lines),
        head="against",
        notes=(*footnotes.notes, *([REPEATED] if set(columns) >= TEXAS_AGAIN else [])),
    )


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


def _caption(title: str, perturbation: Perturbation | None, count: int) -> str:
    attack = f"under {perturbation.label} ({perturbation.mode})" if perturbation else ""
    return (
        f"How far {title} is ahead {attack or 'on clean graphs'}, in points of strict accuracy: "
        "difference with its 95% interval, paired over splits (seeds averaged) and widened for "
        f"their overlap; p of a t test widened likewise, after Holm over all {count} comparisons, "
        "or of a sign-flip test where that is larger. † decided at 5%; ties are differences that "
        f"luck may explain. The chance over graphs flips their signs and needs {FEWEST_GRAPHS}."
    )


def _cell(answer: Comparison | None, most: int, footnotes: Footnotes) -> Cell:
    """It is said where fewer splits could be paired than elsewhere in the table."""
    if answer is None:
        return Cell(footnote=footnotes.number("No test: fewer than 2 splits in common."))
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
    """The mean difference over graphs; with enough of them also its chance, Holm's over rivals."""
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
        if len(own) >= FEWEST_GRAPHS
    ]
    p_values = iter(holm([test.p_value for test in tests]))
    cells = []
    for own in means:
        mean = sum(own) / len(own) if own else None
        if len(own) < FEWEST_GRAPHS:
            cells.append(Cell(mean))
            continue
        p_value = next(p_values)
        cells.append(Cell(mean, p_value=p_value, decided=p_value < HIGHEST_CHANCE))
    return cells
