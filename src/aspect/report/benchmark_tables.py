"""Tables of a benchmark: accuracy, perturbations, ablations, budgets, significance, runtime."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd

from aspect.errors import counted
from aspect.evaluation.significance import mean_drop
from aspect.report.results import (
    CLEAN,
    HEADLINE,
    PERCENT,
    Results,
    family_of,
    is_by_roc_auc,
)
from aspect.report.statistics import (
    FEWEST_TO_TEST,
    REPEATS,
    Place,
    average_ranks,
    common_splits,
    compare,
    compare_with,
    drops,
    mean_differences,
    ranking,
    repeated_graphs,
    score_means,
    summarise,
    tally,
)
from aspect.report.tables import Line, Notes, Table, TableCell, marked, slug

Column = tuple[str, str]  # perturbation and graph

MODES = {
    "poison": "the model is trained and probed on the perturbed graph, one for every split",
    "evade": "the model is trained on the clean graph and tested on the perturbed one",
}
CORNELL = "The paper's Cornell is cornell_old here: Cornell's edges with the nodes of Texas."
# Of settings that the search by one rule did not choose, where it chose those of other cells.
CHOSEN = {
    "defaults": "Not searched yet: the method's defaults.",
    "official": "Not searched yet: the authors' settings.",
    "earlier": "Not searched yet: of an earlier search by another rule, or chosen by hand.",
    "own search": "Settings of a search that the plan names.",
    "by hand": "Not searched as they are: the plan changes settings by hand.",
}
VARIED = "Variants change by hand what their names say."
# What the README shows: no graph twice, the filtered pair in place of the one with duplicates.
SHORT_ROWS = ("raw", "propagated", "aspect")
SHORT_GRAPHS = (
    *("cora", "citeseer", "pubmed", "cornell", "texas", "wisconsin", "actor"),
    *("chameleon_filtered", "squirrel_filtered", "amazon_photo", "minesweeper", "tolokers"),
)
BEST_BASELINES = 3
TOLERANCE = 2.0  # points below a published figure that need an explanation
FEWEST_BUDGETS = 2  # beside the clean graph; fewer make no curve

# Metric: table and caption.
CLEAN_TABLES = {
    HEADLINE: ("clean", "Accuracy on unseen nodes in percent"),
    "optimistic": (
        "clean-optimistic",
        "Accuracy by the optimistic rule, which looks at the test set; only for comparison with "
        "published tables",
    ),
    "macro_f1": ("clean-macro-f1", "Macro-F1 in percent, over the classes of each test set"),
}
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

# The paper's full tables. Those of its main text show a part of them.
PAPERS_TABLES = {"clean": 4, "perturbed": 5, "ablation-clean": 3, "ablation-perturbed": 3}
PAPERS_ATTACK = ("metattack", "unrolled", "poison")
PAPERS_BUDGET = 0.1
PAPERS_PERTURBED_GRAPHS = 6  # its average drop is over all of them


class RunColumn(NamedTuple):
    """A column of `Results.runs`, summarised over the runs of one method and graph."""

    title: str
    name: str
    digits: int = 2
    how: str = "mean ± std"


# Table: caption, columns.
RUN_TABLES = {
    "runtime": (
        "Runtime and memory of one pre-training, mean ± standard deviation over pre-trainings. "
        "Peak memory is that of the worker process, or of the device on a GPU: an upper bound.",
        (
            RunColumn("training, s", "seconds"),
            RunColumn("peak memory, MiB", "memory", 0, "max"),
            RunColumn("epochs", "epochs", 0),
            RunColumn("parameters", "parameters", 0, "mean"),
            RunColumn("device", "device", how="words"),
        ),
    ),
    "health": (
        "Embedding health before any centring, mean ± standard deviation over pre-trainings. A "
        "mean cosine near 1, or an effective rank far below the width, is a representation "
        "collapse.",
        (
            RunColumn("mean cosine", "mean_cosine", 3),
            RunColumn("variance outside the mean, %", "variance", 1),
            RunColumn("effective rank", "effective_rank", 1),
            RunColumn("width", "width", 0, "mean"),
        ),
    ),
}


# Figures of the paper: shown beside ours, never among them


@cache
def published_figures() -> pd.DataFrame:
    """All figures in percent: method, graph (none for an average over graphs), table, mean, std.

    Methods and graphs go by our names. The paper's Cornell is `cornell_old` here: its homophily
    is that of the faulty public copy.
    """
    with files("aspect.report").joinpath("published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False, na_values={"std": [""]})


@cache
def _published() -> dict[Any, float]:
    return published_figures().set_index(["method", "graph", "table"])["mean"].to_dict()


def _papers_table(results: Results, splits: str, perturbation: str) -> str:
    """The paper's table of the same splits and perturbation; empty if there is none.

    Its tables are of class-balanced splits, clean or under Metattack with 10% of the edges and
    masked features. The solver is the original's: published tables were made with implementations
    that unroll.
    """
    if splits != "class-balanced":
        return ""
    if perturbation == CLEAN:
        return "clean"
    state = results.perturbations[perturbation]
    is_same = (state.kind, state.solver, state.mode) == PAPERS_ATTACK and state.features
    return "perturbed" if is_same and math.isclose(state.budget, PAPERS_BUDGET) else ""


def _citation(table: str) -> str:
    return f"Li, Yang and Chen, 2026, Table {PAPERS_TABLES[table]}"


# Tables of scores: variants x (perturbation, graph)


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def fewer_splits_note(results: Results, splits: str, perturbation: str = CLEAN) -> str:
    """A sentence on methods with a mean over fewer splits than another's; empty if none has."""
    summary = summarise(results)
    is_short = summary["splits"].between(1, summary["expected"] - 1)
    short = {name for *place, name, _ in summary.index[is_short] if place == [splits, perturbation]}
    names = ", ".join(results.title(name) for name in results.methods if name in short)
    return f"On fewer splits than the others: {names}." if names else ""


class _Scores:
    """Lines of scores of one metric, a variant each, and the notes that their cells refer to."""

    def __init__(
        self,
        results: Results,
        splits: str,
        rows: Sequence[str],
        columns: Sequence[Column],
        metric: str = HEADLINE,
        *,
        kept: frozenset[int] | None = None,
        with_published: bool = False,
        head: str | None = None,
    ) -> None:
        """`head` is that of an ablation, which the paper has tables of its own for."""
        self.metric, self.notes, self.paper = metric, Notes(), ""
        self.places: dict[Any, dict[Any, Any]] = summarise(results, metric, kept).to_dict("index")
        self.optimistic: dict[Any, float] = {}
        if metric == HEADLINE:
            self.optimistic = summarise(results, "optimistic", kept)["mean"].dropna().to_dict()
        places = [(name, graph) for name in rows for _, graph in columns]
        chosen_by = {place: results.chosen_by.get(place, "") for place in places}
        # A variant starts from the settings of its head: what it changes is no lack.
        chosen_by |= {
            (name, graph): results.chosen_by.get((head, graph), word)
            for (name, graph), word in chosen_by.items()
            if head and word == "by hand"
        }
        self.chosen_counts = Counter(filter(None, map(chosen_by.__getitem__, places)))
        # Who chose the settings is told cell by cell only where it was not one and the same.
        self.chosen_by = chosen_by if len(self.chosen_counts) > 1 else {}
        self.lines: list[Line] = []
        shown = []
        for name in rows:
            variant, cells = results.variants[name], []
            for state, graph in columns:
                figure = None
                if with_published and (paper := _papers_table(results, splits, state)):
                    paper = paper if head is None else f"ablation-{paper}"
                    # The head is the method itself, whatever the plan calls it.
                    known = variant.method if name == head else name
                    figure = _published().get((known, results.graphs[graph], paper))
                    self.paper = self.paper or (paper if figure is not None else "")
                place = (splits, state, name, graph)
                shown.append(self.places.get(place, {"count": 0}))
                cells.append(self.cell(place, figure))
            self.lines.append(Line(variant.title, variant.note, tuple(cells)))
        ranges = []
        for key, noun in (("splits", f"{splits} split"), ("seeds", "pre-training seed")):
            counts = [summary[key] for summary in shown if summary["count"]]
            fewest, most = min(counts, default=0), max(counts, default=0)
            start = "" if fewest == most else f"{fewest} to "
            ranges.append(f"{start}{counted(most, noun)}")
        # For captions: over 10 random splits, 1 to 3 pre-training seeds each.
        self.over = f"mean ± standard deviation over {', '.join(ranges)} each"

    @property
    def cited(self) -> str:
        """A sentence for the caption, after a space, where any figure of the paper is shown."""
        return f" In brackets: the figures of {_citation(self.paper)}." if self.paper else ""

    @property
    def settings_note(self) -> str:
        """Who chose the settings, in a sentence; empty where records do not tell."""
        counts = self.chosen_counts
        if not counts:
            return ""
        total, searched = sum(counts.values()), counts["searched"]
        if searched == total:
            return "All settings were searched by one rule, 20 trials each."
        if len(counts) > 1:
            return (
                f"The settings of {searched} of {total} results were searched by one rule, 20 "
                "trials each. The others have a note: the comparison is not fair until they are "
                "searched."
            )
        (word,) = counts
        words = {
            "defaults": "the methods' defaults: nothing was searched",
            "official": "those of the methods' authors: nothing was searched",
            "earlier": "of an earlier search by another rule, or chosen by hand",
            "own search": "those of searches that the plan names",
            "by hand": "changed by hand in the plan",
        }
        return f"All settings are {words[word]}."

    def cell(self, place: Place, published: float | None = None) -> TableCell:
        """Mean ± std over splits; a gap or a note where runs failed or scores are missing."""
        summary = self.places.get(place)
        if summary is None:
            return TableCell(published=published)
        complaints = []
        if summary["failed"]:
            why = summary["error"] or "no reason was recorded"
            complaints.append(f"{counted(summary['failed'], 'run')} failed ({why.rstrip('.')})")
        if summary["count"] < (whole := summary["seeds"] * summary["expected"]):
            is_even = summary["count"] == summary["seeds"] * summary["splits"]
            complaints.append(
                f"{summary['splits']} of {counted(summary['expected'], 'split')}"
                if is_even
                else f"{summary['count']} of {whole} scores are there"
            )
        complaint = f"{'; '.join(complaints)}." if complaints else ""
        unsearched = CHOSEN.get(self.chosen_by.get(place[2:], ""), "")
        number = self.notes.number(" ".join(filter(None, (complaint, unsearched))))
        if pd.isna(summary["mean"]):
            return TableCell(published=published, footnote=number)
        return TableCell(
            summary["mean"],
            std=_known(summary["std"]),
            published=published,
            footnote=number,
            tip="\n".join([*self._tip(place, summary), *filter(None, [complaint])]),
        )

    def _tip(self, place: Place, summary: dict[str, Any]) -> Iterator[str]:
        metric = self.metric
        if metric == HEADLINE:
            metric = "roc_auc" if is_by_roc_auc(place[3]) else "strict"
        yield f"{RULES[metric]}: {summary['mean']:.2f}%"
        counts = f"{counted(summary['seeds'], 'seed')}, {counted(summary['splits'], 'split')}"
        yield f"{counts}: {counted(summary['count'], 'score')}"
        if pd.notna(summary["low"]):
            over = "seeds" if summary["seeds"] > 1 else "splits"
            yield f"95% interval over {over}: {summary['low']:.2f} to {summary['high']:.2f}"
        for where, std in (("splits", summary["std"]), ("seeds", summary["std_seeds"])):
            if pd.notna(std):
                yield f"standard deviation over {where}: {std:.2f}"
        if place in self.optimistic:
            yield f"by the optimistic rule: {self.optimistic[place]:.2f}%"


def clean_tables(
    results: Results,
    *,
    with_published: bool = False,
    metrics: Collection[str] = tuple(CLEAN_TABLES),
) -> list[Table]:
    """Strict accuracy, optimistic accuracy and macro-F1, for every kind of splits."""
    tables = []
    for splits in results.kinds:
        graphs = results.columns(splits, CLEAN)
        rows, columns = results.rows(splits, CLEAN, graphs), [(CLEAN, graph) for graph in graphs]
        for metric in metrics:
            name, caption = CLEAN_TABLES[metric]
            probes = set(results.select(split_kind=splits, metric=HEADLINE)["probe"])
            probe = f" by the {min(probes)} probe" if len(probes) == 1 and any(probes) else ""
            is_cited = with_published and metric != "macro_f1"
            scores = _Scores(results, splits, rows, columns, metric, with_published=is_cited)
            lines = scores.lines
            is_empty = all(cell.value is None for line in lines for cell in line.cells)
            if not lines or (is_empty and metric != HEADLINE):
                continue
            notes = [*filter(None, [scores.settings_note]), *scores.notes.sentences]
            notes += [CORNELL] if scores.paper and "cornell_old" in graphs else []
            if metric == HEADLINE:
                lines += _baseline_lines(results, splits, CLEAN, graphs)
                notes += _missing_class_notes(results, splits, graphs)
            tables.append(
                Table(
                    results.table_name(name, splits),
                    f"{caption}{probe}; {scores.over}.{scores.cited}",
                    tuple(
                        results.column(graph) if metric == HEADLINE else results.graphs[graph]
                        for graph in graphs
                    ),
                    marked(lines),
                    notes=tuple(notes),
                )
            )
    return tables


def _baseline_lines(
    results: Results, splits: str, perturbation: str, graphs: Sequence[str]
) -> list[Line]:
    lines = []
    for metric, title, note in BASELINES:
        scores = results.select(split_kind=splits, perturbation=perturbation, metric=metric)
        by_graph = scores.drop_duplicates(["graph", "split"]).groupby("graph")["value"]
        means = by_graph.agg(["mean", "std"]).reindex(list(graphs))
        if means["mean"].notna().any():
            cells = tuple(
                TableCell() if is_by_roc_auc(graph) else TableCell(_known(mean), std=_known(std))
                for graph, (mean, std) in zip(graphs, means.to_numpy(), strict=True)
            )
            lines.append(Line(title, note, cells))
    return lines


def _missing_class_notes(results: Results, splits: str, graphs: Sequence[str]) -> list[str]:
    """A sentence on test sets and one on training sets, if any of the graphs' lack classes."""
    sentences = []
    scores = results.select(split_kind=splits)
    numbers = scores.groupby("graph")["split"].nunique()
    for part, metric in (("test", "missing_in_test"), ("training", "missing_in_train")):
        lacking = []
        missing = scores[scores["metric"] == metric]
        for graph in graphs if len(missing) else ():
            counts = missing[missing["graph"] == graph].groupby("value")["split"].nunique()
            ratios = counts / numbers.get(graph, 1)
            always, sometimes = (
                ", ".join(f"{label:.0f}" for label in ratios.index[chosen])
                for chosen in (ratios == 1, ratios < 1)
            )
            parts = [always, sometimes and f"in some splits {sometimes}"]
            if words := " and ".join(part for part in parts if part):
                lacking.append(f"{results.graphs[graph]} {words}")
        if lacking:
            sets = f"{splits} {part} sets"
            sentences.append(f"{sets[0].upper()}{sets[1:]} lack classes: {'; '.join(lacking)}.")
    return sentences


def main_perturbations(results: Results, splits: str) -> list[str]:
    """One budget of each: that with the most splits; of several the paper's, else the lowest."""
    scores = results.select(split_kind=splits, metric=HEADLINE)
    scores = scores[scores["variant"].isin(results.methods)]
    counts = scores.groupby(["perturbation", "variant", "graph"])["split"].nunique()
    most = counts.groupby("perturbation").max()

    def rank(name: str) -> tuple[int, bool]:
        budget = results.perturbations[name].budget
        return int(most.get(name, 0)), math.isclose(budget, PAPERS_BUDGET)

    families = [
        [name for name in family if results.columns(splits, name)]
        for family in results.families(splits)
    ]
    return [max(family, key=rank) for family in families if family]


def perturbed_tables(results: Results, *, with_published: bool = False) -> list[Table]:
    """Strict accuracy and average drop, for every perturbation and budget."""
    return [
        _perturbed_table(results, splits, perturbation, graphs, with_published)
        for splits in results.kinds
        for perturbation in results.perturbations_of(splits)
        if (graphs := results.columns(splits, perturbation))
    ]


def _perturbed_table(
    results: Results, splits: str, perturbation: str, graphs: list[str], with_published: bool
) -> Table:
    rows = results.rows(splits, perturbation, graphs)
    columns = [(perturbation, graph) for graph in graphs]
    scores = _Scores(results, splits, rows, columns, with_published=with_published)
    lost = drops(results, splits, perturbation)
    lost["most"] = lost["splits"].groupby("graph").transform("max")
    lines = []
    for line, name in zip(scores.lines, rows, strict=True):
        own = lost[lost.index.get_level_values("variant") == name].droplevel("variant")
        gaps = [results.graphs[graph] for graph in graphs if graph not in own.index]
        why = f"Without {', '.join(gaps)}: no clean or no perturbed figure." if gaps else ""
        fewer = [
            f"{number} of {counted(most, 'split')}"
            for number, most in zip(own["splits"].tolist(), own["most"].tolist(), strict=True)
            if number < most
        ]
        why = " ".join(filter(None, [why, f"{', '.join(dict.fromkeys(fewer))}." if fewer else ""]))
        has_all = sum(c.published is not None for c in line.cells) == PAPERS_PERTURBED_GRAPHS
        figure = _published().get((name, "", "average-drop")) if has_all else None
        footnote = scores.notes.number(why)
        drop = replace(_drop(own, len(graphs)), published=figure, footnote=footnote)
        lines.append(replace(line, cells=(*line.cells, drop)))
    lines += [
        replace(line, cells=(*line.cells, TableCell()))
        for line in _baseline_lines(results, splits, perturbation, graphs)
    ]
    state = results.perturbations[perturbation]
    solver = f", {state.solver} solver" if state.solver else ""
    masked = ", the same ratio of feature entries masked" if state.features else ""
    return Table(
        results.table_name(f"perturbed-{perturbation}", splits),
        f"Accuracy on unseen nodes in percent under {state.kind} {PERCENT * state.budget:g}%"
        f"{solver}, {state.mode} (edges flipped{masked}; {MODES[state.mode]}); "
        f"{scores.over}. Average drop: (clean - perturbed) / clean in "
        f"percent, averaged over the graphs, with a 95% interval over splits; lower is better."
        f"{scores.cited}",
        (*(results.graphs[graph] for graph in graphs), "average drop"),
        marked(lines, lowest=[len(graphs)]),
        notes=(
            *filter(None, [scores.settings_note]),
            *scores.notes.sentences,
            *_missing_class_notes(results, splits, graphs),
        ),
    )


def drop_tables(results: Results) -> list[Table]:
    """The drop on every graph with its interval, and the mean rank under each perturbation.

    A perturbation without clean scores of the same splits has no table.
    """
    tables = [
        _drop_table(results, splits, perturbation, graphs)
        for splits in results.kinds
        for perturbation in results.perturbations_of(splits)
        if (graphs := results.columns(splits, perturbation))
    ]
    return [table for table in tables if table.lines]


def _drop_table(results: Results, splits: str, perturbation: str, graphs: list[str]) -> Table:
    lost = drops(results, splits, perturbation)
    rows = [
        name
        for name in results.rows(splits, perturbation, graphs)
        if name in lost.index.get_level_values("variant")
    ]
    ranks = average_ranks(score_means(results, splits, perturbation))
    lines = []
    for name in rows:
        own = lost.loc[[name]].droplevel("variant")
        cells = [_drop(own.loc[own.index == graph]) for graph in graphs]
        rank = TableCell(_known(ranks.get(name, math.nan)))
        lines.append(_line(results, name, (*cells, _drop(own, len(graphs)), rank)))
    note = fewer_splits_note(results, splits, perturbation)
    return Table(
        results.table_name(f"drop-{perturbation}", splits),
        f"Drop under {results.state_title(perturbation)}: (clean - perturbed) / clean in percent, "
        "with a 95% interval over splits; lower is better. Mean rank: of the accuracy under the "
        "perturbation, among methods without a gap.",
        (*(results.graphs[graph] for graph in graphs), "average drop", "mean rank"),
        marked(lines, lowest=range(len(graphs) + 2)),
        notes=tuple(filter(None, [note])),
    )


def _drop(lines: pd.DataFrame, num_graphs: int = 1) -> TableCell:
    """The mean of some rows of `drops`, one for each graph; nothing where one is missing."""
    if len(lines) < num_graphs:
        return TableCell()
    mean, low, high = mean_drop(lines["drop"], lines["error"], lines["splits"])
    return TableCell(mean, low=_known(low), high=_known(high))


def ablation_tables(results: Results, *, with_published: bool = False) -> list[Table]:
    """Two tables per group of variants: accuracy, and the difference from the group's head."""
    heads = dict.fromkeys(variant.group for variant in results.variants.values() if variant.group)
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
    variants = [
        name
        for name in members
        if any((splits, state, name, graph) in results.places for state, graph in columns)
    ]
    if head not in variants or len(variants) == 1:
        return
    variants.remove(head)
    titles = tuple(_ablation_column(results, columns))
    rows = [head, *variants]
    scores = _Scores(results, splits, rows, columns, with_published=with_published, head=head)
    words = {results.chosen_by.get((name, graph)) for name in variants for _, graph in columns}
    varied = VARIED if "by hand" in words else ""
    yield Table(
        results.table_name(f"ablation-{slug(head)}", splits),
        f"{results.title(head)} and its variants: accuracy on unseen nodes in percent, "
        f"{scores.over}.{scores.cited}",
        titles,
        marked(scores.lines),
        head="variant",
        notes=tuple(filter(None, [scores.settings_note, varied, *scores.notes.sentences])),
    )
    pairs: list[tuple[Place, Place]] = [
        ((splits, state, name, graph), (splits, state, head, graph))
        for name in variants
        for state, graph in columns
    ]
    compared, notes = compare(results, pairs), Notes()
    most = int(compared["count"].max())
    tests = [
        _difference(row, notes.number(_over_common(row["count"], most) if row["count"] else ""))
        for _, row in compared.iterrows()
    ]
    yield Table(
        results.table_name(f"ablation-{slug(head)}-difference", splits),
        f"Each variant less {results.title(head)}, in points of accuracy with a 95% interval; "
        "below zero, the variant is worse. Paired over splits, p after Holm over all comparisons "
        "of the table; † significant at 5%.",
        titles,
        tuple(
            _line(results, name, tests[start : start + len(columns)])
            for name, start in zip(variants, range(0, len(tests), len(columns)), strict=True)
        ),
        head="variant",
        notes=notes.sentences,
    )


def _ablation_column(results: Results, columns: Sequence[Column]) -> Iterator[str]:
    """Clean graphs go by their name alone where nothing is perturbed."""
    is_perturbed = any(perturbation != CLEAN for perturbation, _ in columns)
    for perturbation, graph in columns:
        state = CLEAN
        if perturbation != CLEAN:
            setup = results.perturbations[perturbation]
            mode = "" if setup.mode == "poison" else f", {setup.mode}"
            state = f"{setup.label}{mode}{'' if setup.features else ', edges alone'}"
        yield f"{results.column(graph)}, {state}" if is_perturbed else results.column(graph)


def _line(results: Results, variant: str, cells: Iterable[TableCell]) -> Line:
    title, note, *_ = results.variants[variant]
    return Line(title, note, tuple(cells))


def _over_common(count: int, most: int) -> str:
    """A note on a difference over fewer splits than others of its table; empty if it is not."""
    return f"Over the {counted(count, 'split')} that both have." if count < most else ""


def _difference(test: pd.Series, footnote: int = 0) -> TableCell:
    """A row of `compare`."""
    if pd.isna(test["difference"]):
        return TableCell(footnote=footnote)
    return TableCell(
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
                untested.append(results.state_title(state))
    return tables, untested


def _significance_table(
    results: Results, splits: str, perturbation: str, reference: str, tests: pd.DataFrame
) -> Table:
    notes = Notes()
    graphs = list(tests.index.get_level_values("graph").unique())
    columns = tuple(map(results.column, graphs))
    repeated = repeated_graphs(results, graphs)
    overall = mean_differences(tests.drop(index=repeated, level="graph"))
    most, lines = int(tests["count"].max()), []
    left_out = []
    for variant in overall.index:
        rows, cells = tests.loc[[variant]], []
        if not rows["count"].any():
            left_out.append(results.title(variant))
            continue
        for _, row in rows.iterrows():
            note = _over_common(row["count"], most)
            if row["count"] == 0:
                note = f"No test: fewer than {FEWEST_TO_TEST} splits in common."
            cells.append(_difference(row, notes.number(note)))
        counts = TableCell(word=" / ".join(map(str, tally(rows))))
        mean = replace(_difference(overall.loc[variant]), low=None, high=None)
        lines.append(_line(results, variant, (*cells, counts, mean)))
    untested = [f"Too few splits for a test: {', '.join(left_out)}."] if left_out else []
    name = "significance" if perturbation == CLEAN else f"significance-{perturbation}"
    under = "on" if perturbation == CLEAN else "under"
    numbers = tests["count"].astype(bool).groupby(tests["is_control"]).sum()
    corrected = " and ".join(
        f"{counted(int(number), 'comparison')} with {'controls' if is_control else 'other methods'}"
        for is_control, number in numbers.items()
    )
    return Table(
        results.table_name(name, splits),
        f"{results.title(reference)} less each other method {under} "
        f"{results.state_title(perturbation)}, in points of strict accuracy with a 95% interval; "
        f"p after Holm over {corrected}. † significant at 5%.",
        (*columns, "better / not significant / worse", "mean over graphs"),
        tuple(lines),
        head="against",
        notes=(
            *notes.sentences,
            *untested,
            *_repeated_note(results, repeated, "mean over graphs"),
        ),
    )


def _repeated_note(results: Results, repeated: Iterable[str], what: str) -> list[str]:
    names = [results.graphs[graph] for graph in repeated]
    if not names:
        return []
    pairs = [f"{name} shares its nodes with {REPEATS[name]}" for name in names]
    return [f"Not in the {what}: {'; '.join(pairs)}."]


def rank_tables(results: Results) -> list[Table]:
    """Mean rank on clean graphs, for every kind of splits; only of methods without a gap."""
    return [table for splits in results.kinds if (table := _rank_table(results, splits))]


def _rank_table(results: Results, splits: str) -> Table | None:
    found = ranking(results, splits)
    if found is None:
        return None
    best = float(found.ranks.iloc[0])
    lines = []
    for name, rank in found.ranks.items():
        is_close = TableCell(word="yes" if rank - best < found.difference else "no")
        lines.append(_line(results, str(name), (TableCell(float(rank)), is_close)))
    gaps = map(results.title, found.unranked)
    notes = [f"Not ranked, since they lack a graph: {', '.join(gaps)}."] if found.unranked else []
    notes += filter(None, [fewer_splits_note(results, splits)])
    return Table(
        results.table_name("ranks", splits),
        f"Mean rank over {counted(found.num_graphs, 'clean graph')} ({splits} splits); 1 is the "
        f"best on every graph. Nemenyi's critical difference at 5% is {found.difference:.2f}.",
        ("mean rank", "within the critical difference of the first"),
        tuple(lines),
        notes=(*notes, *_repeated_note(results, found.repeated, "ranks")),
    )


def short_table(results: Results) -> Table | None:
    """Raw and propagated features, ASPECT and the best baselines by mean rank; random splits.

    Marks are those of all rows: what is bold here is the best of the full table.
    """
    splits = "random"
    graphs = [graph for graph in results.columns(splits, CLEAN) if graph in SHORT_GRAPHS]
    rows = results.rows(splits, CLEAN, graphs)
    means = score_means(results, splits).reindex(index=rows, columns=graphs)
    ranks = average_ranks(means)
    others = [name for name in ranks.index if not results.is_control(name) and name != "aspect"]
    chosen = [name for name in (*SHORT_ROWS, *others[:BEST_BASELINES]) if name in rows]
    if not chosen:
        return None
    columns = [(CLEAN, graph) for graph in graphs]
    scores = _Scores(results, splits, chosen, columns)
    baselines = _baseline_lines(results, splits, CLEAN, graphs)

    def ranked(names: Iterable[str], lines: Iterable[Line]) -> list[Line]:
        cells = [TableCell(_known(ranks.get(name, math.nan))) for name in names]
        return [
            replace(line, cells=(*line.cells, cell))
            for line, cell in zip(lines, cells, strict=True)
        ]

    whole = ranked(
        [*rows, *(line.title for line in baselines)],
        [*_Scores(results, splits, rows, columns).lines, *baselines],
    )
    full = dict(zip(rows, marked(whole, lowest=[len(graphs)]), strict=False))
    lines = [
        replace(
            line,
            note="",
            cells=tuple(
                replace(cell, std=None, digits=1, mark=other.mark)
                for cell, other in zip(line.cells, full[name].cells, strict=True)
            ),
        )
        for name, line in zip(chosen, ranked(chosen, scores.lines), strict=True)
    ]
    over = scores.over.removeprefix("mean ± standard deviation ")
    return Table(
        "short",
        f"Accuracy on unseen nodes in percent by the neutral probe, mean {over}."
        + (f" Mean rank among {counted(len(ranks), 'method')} and controls." if len(ranks) else "")
        + " Marked are the best and the second best of all rows of the full table.",
        (*map(results.column, graphs), "mean rank"),
        tuple(lines),
        notes=tuple(filter(None, [scores.settings_note, *scores.notes.sentences])),
    )


class Sweep(NamedTuple):
    """Accuracy on one graph as the budget of a perturbation grows; budgets are columns."""

    graph: str
    label: str  # of the perturbation: `random (poison)`
    budgets: tuple[float, ...]  # of the columns; the first is 0, the clean graph
    table: Table


def sweeps(results: Results) -> list[Sweep]:
    """One per kind of splits, perturbation with several budgets, and graph."""
    return [
        _sweep(results, splits, graph, present)
        for splits in results.kinds
        for family in results.families(splits)
        for graph in results.graphs
        if len(present := [name for name in family if graph in results.columns(splits, name)])
        >= FEWEST_BUDGETS
    ]


def _sweep(results: Results, splits: str, graph: str, family: Sequence[str]) -> Sweep:
    kept = common_splits(results, splits, graph, family)
    columns = [(state, graph) for state in (CLEAN, *family)]
    rows = [
        name
        for name in results.methods
        if any((splits, state, name, graph) in results.places for state in family)
    ]
    scores = _Scores(results, splits, rows, columns, kept=kept)
    state, title = results.perturbations[family[0]], results.graphs[graph]
    words = [state.solver, state.mode, "" if state.features else "edges alone"]
    label = f"{state.kind} ({', '.join(word for word in words if word)})"
    budgets = [results.perturbations[name].budget for name in family]
    table = Table(
        results.table_name(f"sweep-{family_of(state)}-{slug(title)}", splits),
        f"Accuracy on unseen nodes of {title} in percent as the budget of {label} "
        f"grows; {scores.over}.",
        (CLEAN, *(f"{PERCENT * budget:g}%" for budget in budgets)),
        marked(scores.lines),
        notes=scores.notes.sentences,
    )
    return Sweep(title, label, (0.0, *budgets), table)


def shortfall_tables(results: Results) -> list[Table]:
    """Methods and clean graphs whose strict accuracy is more than `TOLERANCE` below the paper's."""
    tables = []
    for splits in results.kinds:
        paper, graphs = _papers_table(results, splits, CLEAN), results.columns(splits, CLEAN)
        scores, optimistic = (
            _Scores(results, splits, (), (), rule) for rule in ("strict", "optimistic")
        )
        optimistic.notes = scores.notes
        lines = []
        for name in results.rows(splits, CLEAN, graphs):
            for graph, title in ((graph, results.graphs[graph]) for graph in graphs):
                place = (splits, CLEAN, name, graph)
                figure = _published().get((name, title, paper))
                mean = scores.places.get(place, {}).get("mean", math.nan)
                if figure is not None and mean < figure - TOLERANCE:
                    cells = (scores.cell(place), optimistic.cell(place))
                    numbers = (TableCell(figure), TableCell(float(mean - figure)))
                    lines.append(Line(f"{results.title(name)}, {title}", "", (*cells, *numbers)))
        if lines:
            tables.append(
                Table(
                    results.table_name("clean-below", splits),
                    f"More than {TOLERANCE:g} points below the figures of {_citation('clean')}, by "
                    "the strict rule; accuracy in percent. The optimistic rule, which looks at the "
                    "test set, may be the one of the published figures.",
                    ("strict", "optimistic", "published", "strict less published"),
                    tuple(lines),
                    head="method and graph",
                    notes=scores.notes.sentences,
                )
            )
    return tables


# Tables of runs and graphs


def run_table(results: Results, name: str) -> Table:
    """One of `RUN_TABLES`: every method on every graph, without those that have no numbers.

    Runs on clean graphs are summarised, or all where there are none.
    """
    caption, columns = RUN_TABLES[name]
    row = ["graph", "variant"]
    runs = results.runs[results.runs["status"] == "done"]
    is_clean = runs["perturbation"] == CLEAN
    runs = runs[is_clean | ~is_clean.groupby([runs[key] for key in row]).transform("any")]
    groups: dict[Any, pd.DataFrame] = dict(iter(runs.groupby(row)))
    lines = []
    for graph, title in results.graphs.items():
        for variant in results.methods:
            group = groups.get((graph, variant))
            if group is None or (name == "health" and group["mean_cosine"].isna().all()):
                continue
            cells = [_run_cell(group[column.name], column) for column in columns]
            lines.append(_line(results, variant, (TableCell(word=title), *cells)))
    titles = ("graph", *(column.title for column in columns))
    return Table(name, caption, titles, tuple(lines))


def _run_cell(values: pd.Series, column: RunColumn) -> TableCell:
    if column.how == "words":
        return TableCell(word=", ".join(dict.fromkeys(values)))
    numbers = values.astype(float)
    mean, *std = (numbers.agg(how) for how in column.how.split(" ± "))
    return TableCell(_known(mean), std=_known(std[0]) if std else None, digits=column.digits)


def graph_table(results: Results) -> Table:
    """Sizes of the graphs, and how often neighbours are of one class."""
    columns = ("nodes", "edges", "features", "classes", "edge homophily")
    lines = [
        Line(
            str(name),
            "",
            (*(TableCell(size, digits=0) for size in sizes), TableCell(_known(homophily))),
        )
        for name, *sizes, homophily in results.graph_facts.itertuples()
    ]
    caption = "Graphs; edge homophily is the ratio of edges that join nodes of one class"
    return Table("graphs", caption, columns, tuple(lines), head="graph")
