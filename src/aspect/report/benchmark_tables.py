"""Tables of a benchmark: accuracy, perturbations, ablations, budgets, significance, runtime."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from aspect.report.published import PAPERS_BUDGET, Paper, citation
from aspect.report.results import CLEAN, PERCENT, Results, Variant
from aspect.report.statistics import (
    FEWEST_TO_TEST,
    Place,
    average_drop,
    common_splits,
    compare,
    compare_with,
    mean_differences,
    summarise,
)
from aspect.report.tables import Cell, Direction, Line, Notes, Table, counted, marked, slug

__all__ = [
    "ablation_tables",
    "clean_tables",
    "graph_table",
    "health_table",
    "main_budget",
    "mean_cell",
    "missing_class_notes",
    "perturbed_table",
    "perturbed_tables",
    "runtime_table",
    "shortfall_tables",
    "significance_tables",
    "sweep_families",
    "sweep_tables",
    "table_name",
]

MODES = {
    "poison": "the model is trained and probed on the perturbed graph, one for every split",
    "evade": "the model is trained on the clean graph and tested on the perturbed one",
}
CORNELL = "The paper's Cornell is cornell_old here: Cornell's edges with the nodes of Texas."
TEXAS_AGAIN = {"texas", "cornell_old"}  # the same nodes and labels under other edges
REPEATED = "cornell_old has the nodes of texas, so that the mean over graphs leaves it out."
TOLERANCE = 2.0  # points below a published figure that need an explanation
FEWEST_BUDGETS = 2  # beside the clean graph; fewer make no curve

# Table, metric, caption.
CLEAN_TABLES = (
    ("clean", "strict", "Accuracy on unseen nodes in percent"),
    (
        "clean-optimistic",
        "optimistic",
        "Accuracy by the optimistic rule, which looks at the test set; only for comparison with "
        "published tables",
    ),
    ("clean-macro-f1", "macro_f1", "Macro-F1 in percent, over the classes of each test set"),
)
RULES = {
    "strict": "strict accuracy",
    "optimistic": "optimistic accuracy",
    "macro_f1": "macro-F1",
    "roc_auc": "ROC AUC",
}
# Metric of a split, title and note of its row: they need no embedding.
BASELINES = (
    ("twins", "Nearest neighbour by neighbour sets", "no features, no training"),
    ("majority", "Majority class", "of the validation nodes"),
)


def table_name(results: Results, name: str, splits: str) -> str:
    """The name itself; the kind of splits is added to all but those of the first kind."""
    return name if splits == results.kinds[0] else f"{name}-{splits}"


class _Scores:
    """Cells of scores of one metric, and the notes that they refer to."""

    def __init__(
        self, results: Results, metric: str = "strict", kept: frozenset[int] | None = None
    ) -> None:
        self.results, self.metric, self.notes = results, metric, Notes()
        self.places: dict[Any, dict[Any, Any]] = summarise(results, metric, kept).to_dict("index")
        self.optimistic: dict[Any, float] = {}
        if metric == "strict":
            self.optimistic = summarise(results, "optimistic", kept)["mean"].dropna().to_dict()

    def cell(self, place: Place, published: float | None = None) -> Cell:
        """Mean ± std over splits; a gap or a note where runs failed or scores are missing."""
        found = self.places.get(place)
        if found is None:
            return Cell(published=published)
        complaint = self._complaint(found)
        number = self.notes.number(f"{complaint}." if complaint else "")
        if pd.isna(found["mean"]):
            return Cell(published=published, footnote=number)
        return Cell(
            found["mean"],
            std=_known(found["std"]),
            published=published,
            footnote=number,
            tip="\n".join(self._tip(place, found, complaint)),
        )

    def _complaint(self, found: dict[str, Any]) -> str:
        parts = []
        whole = found["seeds"] * found["expected"]
        if found["failed"]:
            why = found["error"] or "no reason was recorded"
            parts.append(f"{counted(found['failed'], 'run')} failed ({why.rstrip('.')})")
        if found["count"] < whole:
            parts.append(f"{found['count']} of {whole} scores are there")
        return "; ".join(parts)

    def _tip(self, place: Place, found: dict[str, Any], complaint: str) -> Iterator[str]:
        yield f"{RULES[self.metric]}: {found['mean']:.2f}%"
        counts = f"{counted(found['seeds'], 'seed')}, {counted(found['splits'], 'split')}"
        yield f"{counts}: {counted(found['count'], 'score')}"
        if pd.notna(found["low"]):
            over = "seeds" if found["seeds"] > 1 else "splits"
            yield f"95% interval over {over}: {found['low']:.2f} to {found['high']:.2f}"
        for where, std in (("splits", found["std"]), ("seeds", found["std_seeds"])):
            if pd.notna(std):
                yield f"standard deviation over {where}: {std:.2f}"
        if place in self.optimistic:
            yield f"by the optimistic rule: {self.optimistic[place]:.2f}%"
        if complaint:
            yield f"{complaint}."

    def line(
        self, variant: str, places: Iterable[Place], published: Iterable[float | None]
    ) -> Line:
        """A row of these places."""
        row = self.results.variants[variant]
        return Line(row.title, row.note, tuple(map(self.cell, places, published)))

    def means_over(self, splits: str, places: Iterable[Place]) -> str:
        """For captions: `mean ± ... over 10 random splits, 1 to 3 pre-training seeds each`."""
        found = [self.places[place] for place in places if place in self.places]
        scored = [each for each in found if each["count"]]
        return (
            "mean ± standard deviation over "
            f"{_range({each['splits'] for each in scored}, f'{splits} split')}, "
            f"{_range({each['seeds'] for each in scored}, 'pre-training seed')} each"
        )


def _range(counts: set[int], noun: str) -> str:
    fewest, most = min(counts, default=0), max(counts, default=0)
    return counted(most, noun) if fewest == most else f"{fewest} to {counted(most, noun)}"


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def _cited(lines: Iterable[Line], table: str) -> str:
    """A sentence for the caption, after a space, where any figure of the paper is shown."""
    is_shown = any(cell.published is not None for line in lines for cell in line.cells)
    return f" In brackets: the figures of {citation(table)}." if is_shown else ""


def clean_tables(
    results: Results,
    *,
    with_published: bool = False,
    metrics: Collection[str] = ("strict", "optimistic", "macro_f1"),
) -> list[Table]:
    """Strict accuracy, optimistic accuracy and macro-F1, for every kind of splits."""
    return [
        table
        for splits in results.kinds
        for name, metric, caption in CLEAN_TABLES
        if metric in metrics
        for table in _clean_table(results, splits, name, metric, caption, with_published)
    ]


def _clean_table(
    results: Results, splits: str, name: str, metric: str, caption: str, with_published: bool
) -> Iterator[Table]:
    graphs, scores = results.columns(splits, CLEAN), _Scores(results, metric)
    rows = results.rows(splits, CLEAN, graphs)
    is_cited = with_published and metric != "macro_f1"
    lines, places = _accuracy_lines(results, scores, splits, CLEAN, rows, graphs, is_cited)
    if not lines or (
        metric != "strict" and all(cell.value is None for line in lines for cell in line.cells)
    ):
        return
    source = _cited(lines, "clean")
    notes = [*scores.notes.sentences, *([CORNELL] if source and "cornell_old" in graphs else [])]
    if metric == "strict":
        lines += _baseline_lines(results, splits, CLEAN, graphs)
        notes += _majority_notes(results, splits, graphs)
        notes += missing_class_notes(results, splits, graphs)
    yield Table(
        table_name(results, name, splits),
        f"{caption}; {scores.means_over(splits, places)}.{source}",
        tuple(results.graphs[graph] for graph in graphs),
        marked(lines),
        notes=tuple(notes),
    )


def _accuracy_lines(
    results: Results,
    scores: _Scores,
    splits: str,
    perturbation: str,
    rows: Sequence[str],
    graphs: Sequence[str],
    with_published: bool,
) -> tuple[list[Line], list[Place]]:
    paper = Paper.of(results, splits, perturbation) if with_published else Paper("")
    lines, every = [], []
    for variant in rows:
        places = [(splits, perturbation, variant, graph) for graph in graphs]
        published = [paper.accuracy(variant, results.graphs[graph]) for graph in graphs]
        lines.append(scores.line(variant, places, published))
        every += places
    return lines, every


def _baseline_scores(
    results: Results, splits: str, perturbation: str, metric: str, *, of_first_version: bool = False
) -> pd.DataFrame:
    """Mean and std over splits by graph; version 0.1 named no probe."""
    scores = results.select(split_kind=splits, perturbation=perturbation, metric=metric)
    scores = scores[(scores["probe"] == "") == of_first_version]
    by_graph = scores.drop_duplicates(["graph", "split"]).groupby("graph")["value"]
    return by_graph.agg(["mean", "std"])


def _baseline_lines(
    results: Results, splits: str, perturbation: str, graphs: Sequence[str]
) -> list[Line]:
    lines = []
    for metric, title, note in BASELINES:
        means = _baseline_scores(results, splits, perturbation, metric).reindex(list(graphs))
        if means["mean"].notna().any():
            cells = tuple(Cell(_known(mean), std=_known(std)) for mean, std in means.to_numpy())
            lines.append(Line(title, note, cells))
    return lines


def _majority_notes(results: Results, splits: str, graphs: Sequence[str]) -> list[str]:
    """The majority-class baseline of records of version 0.1, which had no row for it."""
    means = _baseline_scores(results, splits, CLEAN, "majority", of_first_version=True)["mean"]
    told = [f"{results.graphs[graph]} {means[graph]:.2f}" for graph in graphs if graph in means]
    if not told:
        return []
    return [f"Majority-class baseline, the most frequent class of validation: {', '.join(told)}."]


def missing_class_notes(results: Results, splits: str, graphs: Sequence[str]) -> list[str]:
    """A sentence on test sets and one on training sets, if any of the graphs' lack classes."""
    sentences = []
    for part, metric in (("test", "missing_in_test"), ("training", "missing_in_train")):
        lacking = []
        for graph in graphs:
            missing = results.select(split_kind=splits, graph=graph, metric=metric)
            number = results.select(split_kind=splits, graph=graph)["split"].nunique()
            shares = missing.groupby("value")["split"].nunique() / max(number, 1)
            parts = [
                f"{where}{', '.join(f'{label:.0f}' for label in labels)}"
                for where, labels in (
                    ("", shares.index[shares == 1]),
                    ("in some splits ", shares.index[shares < 1]),
                )
                if len(labels)
            ]
            lacking += [f"{results.graphs[graph]} {' and '.join(parts)}"] if parts else []
        if lacking:
            sets = f"{splits} {part} sets"
            sentences.append(f"{sets[0].upper()}{sets[1:]} lack classes: {'; '.join(lacking)}.")
    return sentences


def perturbed_tables(results: Results, *, with_published: bool = False) -> list[Table]:
    """Strict accuracy and average drop, for every perturbation and budget."""
    return [
        perturbed_table(results, splits, perturbation, with_published=with_published)
        for splits in results.kinds
        for perturbation in results.perturbations_of(splits)
        if results.columns(splits, perturbation)
    ]


def main_budget(results: Results, splits: str, family: Sequence[str]) -> str:
    """The perturbation with the most splits; of several the paper's, else the lowest."""
    scores = results.select(split_kind=splits, metric="strict")
    scores = scores[scores["variant"].isin(results.methods)]
    counts = scores.groupby(["perturbation", "variant", "graph"])["split"].nunique()
    most = counts.groupby("perturbation").max()

    def rank(name: str) -> tuple[int, bool]:
        budget = results.perturbations[name].budget
        return int(most.get(name, 0)), math.isclose(budget, PAPERS_BUDGET)

    return max(family, key=rank)


def perturbed_table(
    results: Results, splits: str, perturbation: str, *, with_published: bool = False
) -> Table:
    """Strict accuracy and average drop under one perturbation at one budget."""
    graphs, scores = results.columns(splits, perturbation), _Scores(results)
    rows = results.rows(splits, perturbation, graphs)
    lines, places = _accuracy_lines(
        results, scores, splits, perturbation, rows, graphs, with_published
    )
    drops = _drops(results, splits, perturbation, graphs, scores.notes)
    paper = Paper.of(results, splits, perturbation) if with_published else Paper("")
    titles = [results.graphs[graph] for graph in graphs]
    lines = [
        replace(
            line,
            cells=(
                *line.cells,
                replace(drops[name], published=paper.average_drop(name, titles)),
            ),
        )
        for line, name in zip(lines, rows, strict=True)
    ]
    lines += [
        replace(line, cells=(*line.cells, Cell()))
        for line in _baseline_lines(results, splits, perturbation, graphs)
    ]
    highest: Direction = "highest"
    directions: list[Direction] = [*[highest] * len(graphs), "lowest"]
    setup = results.perturbations[perturbation]
    solver = f", {setup.solver} solver" if setup.solver else ""
    masked = ", the same ratio of feature entries masked" if setup.features else ""
    return Table(
        table_name(results, f"perturbed-{perturbation}", splits),
        f"Accuracy on unseen nodes in percent under {setup.kind} {PERCENT * setup.budget:g}%"
        f"{solver}, {setup.mode} (edges flipped{masked}; {MODES[setup.mode]}); "
        f"{scores.means_over(splits, places)}. Average drop: (clean - perturbed) / clean in "
        f"percent, averaged over the graphs; lower is better.{_cited(lines, 'perturbed')}",
        (*titles, "average drop"),
        marked(lines, directions),
        notes=(*scores.notes.sentences, *missing_class_notes(results, splits, graphs)),
    )


def _drops(
    results: Results, splits: str, perturbation: str, graphs: Sequence[str], notes: Notes
) -> dict[str, Cell]:
    """The average drop of every row; a note names the graphs that an average leaves out."""
    cells = {}
    for variant in results.rows(splits, perturbation, graphs):
        sides = [
            results.select(split_kind=splits, perturbation=state, variant=variant, metric="strict")
            .groupby(["graph", "split"])["value"]
            .mean()
            for state in (CLEAN, perturbation)
        ]
        drops = average_drop(*sides).reindex(list(graphs))
        left_out = [results.graphs[graph] for graph in graphs if pd.isna(drops[graph])]
        sentence = f"Without {', '.join(left_out)}: no clean or no perturbed figure."
        number = notes.number(sentence if left_out else "")
        cells[variant] = Cell(_known(drops.mean()), footnote=number)
    return cells


def ablation_tables(results: Results, *, with_published: bool = False) -> list[Table]:
    """Two tables per group of variants: accuracy, and the difference from the group's head."""
    heads = dict.fromkeys(each.group for each in results.variants.values() if each.group)
    return [
        table
        for splits in results.kinds
        for head in heads
        for table in _ablation(results, splits, head, with_published)
    ]


def _ablation(results: Results, splits: str, head: str, with_published: bool) -> Iterator[Table]:
    members = [name for name, variant in results.variants.items() if variant.group == head]
    columns = [
        (perturbation, graph)
        for graph in results.graphs
        for perturbation in (CLEAN, *results.perturbations_of(splits))
        if graph in results.columns(splits, perturbation, members)
    ]
    places = {
        name: [(splits, perturbation, name, graph) for perturbation, graph in columns]
        for name in members
    }
    present = [name for name in members if set(places[name]) & results.places]
    variants = [name for name in present if name != head]
    if head not in present or not variants:
        return
    titles = tuple(_ablation_column(results, columns))
    scores = _Scores(results)
    lines = []
    for name in (head, *variants):
        # The head is the method itself, whatever the plan calls it.
        known = results.variants[name].method if name == head else name
        published = [
            Paper.of(results, splits, state, of_ablation=True).accuracy(
                known, results.graphs[graph]
            )
            if with_published
            else None
            for state, graph in columns
        ]
        lines.append(scores.line(name, places[name], published))
    every = [place for name in (head, *variants) for place in places[name]]
    yield Table(
        table_name(results, f"ablation-{slug(head)}", splits),
        f"{results.title(head)} and its variants: accuracy on unseen nodes in percent, "
        f"{scores.means_over(splits, every)}.{_cited(lines, 'ablation-clean')}",
        titles,
        marked(lines),
        head="variant",
        notes=scores.notes.sentences,
    )
    pairs = [pair for name in variants for pair in zip(places[name], places[head], strict=True)]
    differences = (row for _, row in compare(results, pairs).iterrows())
    yield Table(
        table_name(results, f"ablation-{slug(head)}-difference", splits),
        f"Each variant less {results.title(head)}, in points of accuracy with a 95% interval; "
        "below zero, the variant is worse. Paired over splits, p after Holm over all comparisons "
        "of the table; † significant at 5%.",
        titles,
        tuple(
            _line(results.variants[name], [_difference(next(differences)) for _ in columns])
            for name in variants
        ),
        head="variant",
    )


def _ablation_column(results: Results, columns: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Clean graphs go by their name alone where nothing is perturbed."""
    is_perturbed = any(perturbation != CLEAN for perturbation, _ in columns)
    for perturbation, graph in columns:
        state = CLEAN
        if perturbation != CLEAN:
            setup = results.perturbations[perturbation]
            mode = "" if setup.mode == "poison" else f", {setup.mode}"
            state = f"{setup.label}{mode}{'' if setup.features else ', edges alone'}"
        yield f"{results.graphs[graph]}, {state}" if is_perturbed else results.graphs[graph]


def _line(variant: Variant, cells: Iterable[Cell]) -> Line:
    return Line(variant.title, variant.note, tuple(cells))


def _difference(test: pd.Series, footnote: int = 0) -> Cell:
    """A row of `compare`."""
    if pd.isna(test["difference"]):
        return Cell(footnote=footnote)
    return Cell(
        float(test["difference"]),
        low=_known(test["low"]),
        high=_known(test["high"]),
        p_value=_known(test["p"]),
        significant=bool(test["significant"]),
        footnote=footnote,
    )


def significance_tables(
    results: Results, reference: str | None = None
) -> tuple[list[Table], list[str]]:
    """The reference against every other method; and where there are too few splits to test.

    Returns:
        One table per kind of splits and perturbation, and names such as `random 5% (poison)`.
    """
    tables: list[Table] = []
    untested: list[str] = []
    for splits in results.kinds:
        for state in (CLEAN, *results.perturbations_of(splits)):
            head = results.reference(reference)
            tests = compare_with(results, splits, state, head)
            if tests["count"].any():
                tables.append(_significance_table(results, splits, state, head, tests))
            elif len(tests):
                untested.append(_where(results, state))
    return tables, untested


def _where(results: Results, perturbation: str) -> str:
    if perturbation == CLEAN:
        return "clean graphs"
    setup = results.perturbations[perturbation]
    return f"{setup.label} ({setup.mode}{'' if setup.features else ', edges alone'})"


def _significance_table(
    results: Results, splits: str, perturbation: str, reference: str, tests: pd.DataFrame
) -> Table:
    notes = Notes()
    graphs = list(tests.index.get_level_values("graph").unique())
    columns = tuple(results.graphs[graph] for graph in graphs)
    is_repeated = set(columns) >= TEXAS_AGAIN
    counted_once = [
        graph for graph in graphs if not is_repeated or results.graphs[graph] != "cornell_old"
    ]
    overall = mean_differences(tests[tests.index.isin(counted_once, level="graph")])
    most, lines = int(tests["count"].max()), []
    for variant in overall.index:
        rows = tests.loc[[variant]]
        cells = [
            _difference(row, notes.number(_split_note(int(row["count"]), most)))
            for _, row in rows.iterrows()
        ]
        better = int((rows["significant"] & (rows["difference"] > 0)).sum())
        worse = int((rows["significant"] & (rows["difference"] < 0)).sum())
        same = int((rows["count"] > 0).sum()) - better - worse
        tally = Cell(word=f"{better} / {same} / {worse}")
        mean = replace(_difference(overall.loc[variant]), low=None, high=None)
        lines.append(_line(results.variants[variant], (*cells, tally, mean)))
    name = "significance" if perturbation == CLEAN else f"significance-{perturbation}"
    under = "on" if perturbation == CLEAN else "under"
    number = int(tests["count"].astype(bool).sum())
    return Table(
        table_name(results, name, splits),
        f"{results.title(reference)} less each other method {under} "
        f"{_where(results, perturbation)}, in points of strict accuracy with a 95% interval; "
        f"p after Holm over {counted(number, 'comparison')}. † significant at 5%.",
        (*columns, "better / not significant / worse", "mean over graphs"),
        tuple(lines),
        head="against",
        notes=(*notes.sentences, *([REPEATED] if is_repeated else [])),
    )


def _split_note(count: int, most: int) -> str:
    if count == 0:
        return f"No test: fewer than {FEWEST_TO_TEST} splits in common."
    return f"Over the {count} splits that both have." if count < most else ""


def sweep_families(results: Results) -> list[tuple[str, str, list[str]]]:
    """Kind of splits, graph and perturbations that differ in their budget alone, several each."""
    return [
        (splits, graph, present)
        for splits in results.kinds
        for family in results.families(splits)
        for graph in results.graphs
        if len(present := [name for name in family if graph in results.columns(splits, name)])
        >= FEWEST_BUDGETS
    ]


def sweep_tables(results: Results) -> list[Table]:
    """Accuracy as the budget grows, budgets as columns."""
    return [_sweep_table(results, *family) for family in sweep_families(results)]


def _sweep_table(results: Results, splits: str, graph: str, family: Sequence[str]) -> Table:
    scores = _Scores(results, kept=common_splits(results, splits, graph, family))
    states = (CLEAN, *family)
    rows = {
        name: [(splits, state, name, graph) for state in states]
        for name in results.methods
        if any((splits, state, name, graph) in results.places for state in family)
    }
    lines = [scores.line(name, places, [None] * len(states)) for name, places in rows.items()]
    setup = results.perturbations[family[0]]
    words = [setup.solver, setup.mode, "" if setup.features else "edges alone"]
    label = f"{setup.kind} ({', '.join(word for word in words if word)})"
    every = [place for places in rows.values() for place in places]
    name = f"sweep-{setup.family}-{slug(results.graphs[graph])}"
    return Table(
        table_name(results, name, splits),
        f"Accuracy on unseen nodes of {results.graphs[graph]} in percent as the budget of {label} "
        f"grows; {scores.means_over(splits, every)}.",
        (CLEAN, *(f"{PERCENT * results.perturbations[state].budget:g}%" for state in family)),
        marked(lines),
        notes=scores.notes.sentences,
    )


def shortfall_tables(results: Results) -> list[Table]:
    """Methods and clean graphs whose strict accuracy is more than `TOLERANCE` below the paper's."""
    tables = []
    for splits in results.kinds:
        paper, graphs = Paper.of(results, splits, CLEAN), results.columns(splits, CLEAN)
        scores, optimistic = _Scores(results), _Scores(results, "optimistic")
        optimistic.notes = scores.notes
        lines = []
        for name in results.rows(splits, CLEAN, graphs):
            for graph in graphs:
                place = (splits, CLEAN, name, graph)
                figure = paper.accuracy(name, results.graphs[graph])
                mean = _known(scores.places.get(place, {}).get("mean", math.nan))
                if figure is not None and mean is not None and mean < figure - TOLERANCE:
                    cells = (scores.cell(place), optimistic.cell(place))
                    title = f"{results.title(name)}, {results.graphs[graph]}"
                    lines.append(Line(title, "", (*cells, Cell(figure), Cell(mean - figure))))
        if lines:
            tables.append(
                Table(
                    table_name(results, "clean-below", splits),
                    f"More than {TOLERANCE:g} points below the figures of {citation('clean')}, by "
                    "the strict rule; accuracy in percent. The optimistic rule, which looks at the "
                    "test set, may be the one of the published figures.",
                    ("strict", "optimistic", "published", "strict less published"),
                    tuple(lines),
                    head="method and graph",
                    notes=scores.notes.sentences,
                )
            )
    return tables


def _trainings(results: Results) -> Iterator[tuple[Variant, str, pd.DataFrame]]:
    """Runs of every graph and method that are done: those on clean graphs, else all."""
    done = results.runs[results.runs["status"] == "done"]
    for graph in results.graphs:
        for name in results.methods:
            runs = done[(done["graph"] == graph) & (done["variant"] == name)]
            clean = runs[runs["perturbation"] == CLEAN]
            if len(runs):
                yield results.variants[name], results.graphs[graph], clean if len(clean) else runs


def mean_cell(values: pd.Series, digits: int = 2, *, with_std: bool = True) -> Cell:
    """Mean ± std of the values that are known."""
    numbers = values.astype(float)
    std = _known(numbers.std()) if with_std else None
    return Cell(_known(numbers.mean()), std=std, digits=digits)


def runtime_table(results: Results) -> Table:
    """Runtime, memory and size of every method on every graph."""
    lines = [
        _line(
            variant,
            (
                Cell(word=graph),
                mean_cell(runs["seconds"]),
                Cell(_known(runs["memory"].astype(float).max()), digits=0),
                mean_cell(runs["epochs"], 0),
                mean_cell(runs["parameters"], 0, with_std=False),
                Cell(word=", ".join(dict.fromkeys(runs["device"]))),
            ),
        )
        for variant, graph, runs in _trainings(results)
    ]
    return Table(
        "runtime",
        "Runtime and memory of one pre-training, mean ± standard deviation over pre-trainings. "
        "Peak memory is that of the worker process, or of the device on a GPU: an upper bound.",
        ("graph", "training, s", "peak memory, MiB", "epochs", "parameters", "device"),
        tuple(lines),
    )


def health_table(results: Results) -> Table:
    """Embedding health of every method on every graph whose records have it."""
    lines = [
        _line(
            variant,
            (
                Cell(word=graph),
                mean_cell(runs["mean_cosine"], 3),
                mean_cell(PERCENT * runs["variance"].astype(float), 1),
                mean_cell(runs["effective_rank"], 1),
                mean_cell(runs["width"], 0, with_std=False),
            ),
        )
        for variant, graph, runs in _trainings(results)
        if runs["mean_cosine"].notna().any()
    ]
    return Table(
        "health",
        "Embedding health before any centring, mean ± standard deviation over pre-trainings. A "
        "mean cosine near 1, or an effective rank far below the width, is a representation "
        "collapse.",
        ("graph", "mean cosine", "variance outside the mean, %", "effective rank", "width"),
        tuple(lines),
    )


def graph_table(results: Results) -> Table:
    """Sizes of the graphs, and how often neighbours are of one class."""
    columns = ("nodes", "edges", "features", "classes", "edge homophily")
    lines = [
        Line(
            str(name),
            "",
            (*(Cell(count, digits=0) for count in sizes), Cell(_known(homophily))),
        )
        for name, *sizes, homophily in results.graph_facts.itertuples()
    ]
    caption = "Graphs; edge homophily is the ratio of edges that join nodes of one class"
    return Table("graphs", caption, columns, tuple(lines), head="graph")
