"""The page of a report: findings, sections with tables and figures, nodes of the models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from aspect import __version__
from aspect.evaluation.details import Details
from aspect.report import benchmark_tables as tables_of
from aspect.report import model_plots as models
from aspect.report.html import render
from aspect.report.node_details import explorer_json
from aspect.report.plots import Plot, accuracy_plots, means_table, short, sweep_plots
from aspect.report.results import CLEAN, Results
from aspect.report.sources import Material
from aspect.report.statistics import FEWEST_TO_TEST, average_ranks, compare_with
from aspect.report.tables import Table, counted

__all__ = ["Section", "findings", "render_page", "sections"]

TITLE = "Node embeddings, compared"
SCRIPTS = ("sort.js", "tips.js", "explorer.js", "print.js")
MOST_NAMED = 10  # models whose correlations are printed one by one
MOST_TRAININGS = 3  # models before the others are folded

TEXTS = {
    "accuracy": "Frozen embeddings, a linear probe on each split. Validation alone chooses the "
    "probe's settings, and test nodes are evaluated once.",
    "clean": "The first table is the one to cite. The best of a column is bold, the second best "
    "underlined.",
    "perturbed": "The same graphs after some edges are flipped. A poisoned graph is made for one "
    "split, and each split has its own model. The average drop compares splits that both the clean "
    "and the perturbed graph have.",
    "metattack": " Metattack knows the classes of the split's training nodes. Its unrolled solver "
    "is that of the original and of published tables; the implicit one is another, usually "
    "stronger attack.",
    "ablation": "One part removed or replaced at a time, with the same settings otherwise. The "
    "best of each column is marked within the group.",
    "sweep": "One figure per graph and perturbation; a budget of zero is the clean graph.",
    "significance": "Differences are paired over the splits of one graph (seeds averaged), since "
    "scores of one split share its test nodes; intervals are widened for the splits' overlap. p is "
    "that of a t test widened likewise, after Holm's correction over all comparisons of a table, "
    "or of a sign-flip test where that is larger. Means over graphs are tested in the same way "
    f"from {FEWEST_TO_TEST} graphs on.",
    "runtime": "Times compare on one device alone, and when nothing else ran there.",
    "health": "An embedding whose rows nearly share one direction hardly distinguishes nodes, "
    "whatever a probe makes of it. Features that are never negative share a direction without any "
    "training.",
    "gate": "Distribution of the gate weight of the low band over the nodes. A policy that "
    "collapsed to one weight for all nodes would be a single peak.",
    "evidence": "The gate should weigh the low band more where that band has the lower cost.",
    "sensitivity": "A gate that accounts for stability weighs the low band more where the high "
    "band is less stable. ASPECT-S is searched with its own settings, other models with its "
    "defaults.",
    "homophily": "Homophilic neighbourhoods should lean to the low band; no label is used in "
    "training.",
    "filters": "Response of each band over the spectrum of the graph.",
    "attacked": "One model, trained on the clean graph, evaluated on the clean and on perturbed "
    "graphs.",
    "training": "Loss terms and gate in training, and the adversarial perturbations that were "
    "found on the way, for methods that search for them.",
    "nodes": "Every dot is a node, placed by its embedding. A node's card shows the gate weight of "
    "its low band, the loss of each band, the distance that each band moves under the worst small "
    "perturbation of the graph that was found (its sensitivity), and its neighbours.",
    "again": "The commands that make this page again, and the settings behind every number.",
    "failed": "These runs left no scores; the tables show gaps where they would stand.",
}


@dataclass(frozen=True)
class Section:
    """A part of the page; some have more to show than tables and figures, by their name."""

    name: str  # letters and dashes: the anchor
    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    more_title: str = ""
    more_tables: tuple[Table, ...] = ()  # folded on the screen
    more_plots: tuple[Plot, ...] = ()

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """Folded ones as well."""
        return (*self.tables, *self.more_tables)

    @property
    def all_plots(self) -> tuple[Plot, ...]:
        """Folded ones as well."""
        return (*self.plots, *self.more_plots)

    @property
    def abreast(self) -> bool:
        """Figures alone: short sections of them stand side by side."""
        return bool(self.plots) and not self.all_tables and self.name not in ("accuracy", "sweep")


def sections(
    material: Material, *, with_published: bool = False, reference: str | None = None
) -> list[Section]:
    """The parts of the page in reading order; `reference` is the variant to compare with."""
    results, details = material.results, material.details
    failed = (results.runs["status"] == "failed").any()
    parts = [
        *(_scored(results, with_published, reference) if len(results.scores) else ()),
        *_models(details),
        *([Section("nodes", "Node by node", TEXTS["nodes"])] if details else []),
        *(_trainings(results) if len(results.scores) else ()),
        *([Section("failed", "Failed runs", TEXTS["failed"])] if failed else []),
        Section("again", "What was run", TEXTS["again"]),
    ]
    return _with_unique_names(parts)


def _scored(results: Results, with_published: bool, reference: str | None) -> Iterator[Section]:
    head = results.reference(reference)
    plots = [plot for splits in results.kinds for plot in accuracy_plots(results, splits, head)]
    if plots:
        yield Section("accuracy", "Accuracy and ranks", TEXTS["accuracy"], plots=tuple(plots))
    clean = tables_of.clean_tables(results, with_published=with_published, metrics=["strict"])
    if clean:
        others = ["optimistic", "macro_f1"]
        more = tables_of.clean_tables(results, with_published=with_published, metrics=others)
        more += tables_of.shortfall_tables(results) if with_published else []
        yield Section(
            "clean",
            "Clean graphs",
            TEXTS["clean"],
            tuple(clean),
            more_title="Other metrics",
            more_tables=tuple(more),
        )
    yield from _perturbed(results, with_published)
    ablation = tables_of.ablation_tables(results, with_published=with_published)
    if ablation:
        yield Section("ablation", "Ablation", TEXTS["ablation"], tuple(ablation))
    sweep = tables_of.sweep_tables(results)
    if sweep:
        yield Section(
            "sweep",
            "Accuracy by budget",
            TEXTS["sweep"],
            plots=tuple(sweep_plots(results)),
            more_title="The same as tables",
            more_tables=tuple(sweep),
        )
    tests, left_out = tables_of.significance_tables(results, reference)
    sentences = [TEXTS["significance"]] if tests else []
    if left_out:
        sentences.append(
            f"Left out: {', '.join(left_out)}; with fewer than {FEWEST_TO_TEST} splits in common "
            "no difference can be significant, since a sign-flip test then gives no p below 5%."
        )
    if sentences:
        yield Section("significance", "Significance", " ".join(sentences), tuple(tests))


def _perturbed(results: Results, with_published: bool) -> Iterator[Section]:
    """One budget of every perturbation; the others are folded."""
    main: list[Table] = []
    others: list[Table] = []
    for splits in results.kinds:
        for family in results.families(splits):
            present = [name for name in family if results.columns(splits, name)]
            shown = tables_of.main_budget(results, splits, present) if present else ""
            for name in present:
                table = tables_of.perturbed_table(
                    results, splits, name, with_published=with_published
                )
                (main if name == shown else others).append(table)
    if main:
        has_metattack = any(setup.kind == "metattack" for setup in results.perturbations.values())
        yield Section(
            "perturbed",
            "Perturbed graphs",
            TEXTS["perturbed"] + TEXTS["metattack"] * has_metattack,
            tuple(main),
            more_title="Other budgets",
            more_tables=tuple(others),
        )


def _trainings(results: Results) -> Iterator[Section]:
    for name, title, table in (
        ("runtime", "Runtime and memory", tables_of.runtime_table(results)),
        ("health", "Embedding health", tables_of.health_table(results)),
    ):
        if table.lines:
            yield Section(name, title, TEXTS[name], (table,))


def _models(details: Sequence[Details]) -> Iterator[Section]:
    """Figures of the models, but for their maps; parts without a figure are left out."""
    for name, title, plots in (
        ("gate", "Gate weights", models.density_plots(details)),
        ("evidence", "Gate and cost", models.gate_plots(details, "cost_gap")),
        ("sensitivity", "Gate and sensitivity", models.gate_plots(details, "sensitivity_gap")),
        ("homophily", "Gate and local homophily", models.gate_plots(details, "homophily")),
        ("filters", "Learned filters", models.filter_plots(details)),
        ("attacked", "The gate on perturbed graphs", models.attacked_plots(details)),
    ):
        if plots:
            yield Section(name, title, TEXTS[name] + _correlated(details, name), plots=tuple(plots))
    losses = models.loss_plots(details)
    if losses:
        kinds = (losses, models.training_gate_plots(details), models.search_plots(details))
        more = tuple(plot for plots in kinds for plot in plots[MOST_TRAININGS:])
        yield Section(
            "training",
            "Training",
            TEXTS["training"],
            plots=tuple(plot for plots in kinds for plot in plots[:MOST_TRAININGS]),
            more_title=counted(len(more), "more figure"),
            more_plots=more,
        )


def _correlated(details: Sequence[Details], section: str) -> str:
    """Spearman's correlations, after a space, for sections that set the gate against something."""
    rivals: dict[str, models.Rival] = {
        "evidence": "cost_gap",
        "sensitivity": "sensitivity_gap",
        "homophily": "homophily",
    }
    values = models.correlations(details, rivals[section]) if section in rivals else []
    if not values:
        return ""
    several = len({each.title for each, _ in values}) > 1
    told = "; ".join(
        f"{models.full_title(each) if several else short(each.graph)} {value:.2f}"
        for each, value in values[:MOST_NAMED]
    )
    more = f"; and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else ""
    what = rivals[section].replace("_", " ").replace("homophily", "local homophily")
    return f" Spearman's rank correlation of gate and {what}: {told}{more}."


def _with_unique_names(parts: Sequence[Section]) -> list[Section]:
    """Names become ids and files; untrusted ones that became equal are numbered."""
    taken: Counter[str] = Counter()

    def unique(name: str) -> str:
        taken[name] += 1
        return name if taken[name] == 1 else unique(f"{name}-{taken[name]}")

    return [
        replace(
            part,
            tables=tuple(replace(table, name=unique(table.name)) for table in part.tables),
            plots=tuple(replace(plot, name=unique(plot.name)) for plot in part.plots),
            more_tables=tuple(replace(each, name=unique(each.name)) for each in part.more_tables),
            more_plots=tuple(replace(each, name=unique(each.name)) for each in part.more_plots),
        )
        for part in parts
    ]


def findings(results: Results, reference: str | None = None) -> list[str]:
    """The results in sentences: what was run, ranks, best methods, significance, robustness."""
    if results.runs.empty or results.scores.empty:
        return ["Nothing was scored: the graphs have no labels, or no run was."]
    sentences = list(_overview(results))
    head = results.reference(reference)
    for splits in results.kinds:
        sentences += _clean_findings(results, splits, head)
        sentences += _perturbed_findings(results, splits)
    warned = int((results.runs["warnings"] > 0).sum())
    if warned:
        sentences.append(
            f"{counted(warned, 'run')} ended with a warning, such as a representation collapse; "
            "the last section lists them."
        )
    return sentences


def _counts(results: Results) -> dict[str, int]:
    runs = results.runs
    splits = runs[["split_kind", "split_numbers"]].explode("split_numbers").drop_duplicates()
    counts = {
        "runs": len(runs),
        "failed": int((runs["status"] == "failed").sum()),
        "methods": len(results.methods),
        "variants": len(results.variants) - len(results.methods),
        "graphs": len(results.graphs),
        "perturbations": len(results.perturbations),
        "seeds": runs["seed"].nunique(),
        "splits": len(splits),
    }
    rare = ("failed", "variants", "perturbations")
    return {name: count for name, count in counts.items() if count or name not in rare}


def _overview(results: Results) -> Iterator[str]:
    counts = {"failed": 0, "variants": 0, "perturbations": 0, **_counts(results)}
    variants = f" and {counted(counts['variants'], 'variant')}" if counts["variants"] else ""
    is_clean = (results.runs["perturbation"] == CLEAN).any()
    attacked = counted(counts["perturbations"], "perturbation")
    states = ["clean"] * bool(is_clean) + [f"under {attacked}"] * bool(counts["perturbations"])
    kinds = " and ".join(results.kinds)
    yield (
        f"{counted(counts['methods'], 'method')}{variants} on "
        f"{counted(counts['graphs'], 'graph')}, {' and '.join(states)}, with "
        f"{counted(counts['seeds'], 'pre-training seed')} and "
        f"{counted(counts['splits'], f'{kinds} split')}: "
        f"{counts['runs'] - counts['failed']:,} of {counted(counts['runs'], 'run')} "
        f"{'is' if counts['runs'] == 1 else 'are'} done."
    )
    if counts["failed"]:
        yield (
            f"{counted(counts['failed'], 'run')} failed and left a gap in the tables; the section "
            "on failed runs lists why."
        )


def _clean_findings(results: Results, splits: str, reference: str) -> Iterator[str]:
    means = means_table(results, splits).dropna(axis=1, how="all")
    if len(means) < 2:  # noqa: PLR2004 - nothing to compare
        return
    where = f"{counted(means.shape[1], 'clean graph')} ({splits} splits)"
    ranks = average_ranks(means)
    if len(ranks) > 1 and means.shape[1] > 1:
        first = ", ".join(
            f"{results.title(name)} {ranks[name]:.1f}" for name in list(ranks.index)[:3]
        )
        yield f"Best average ranks over {where}: {first}."
    shown = means.round(2)
    is_best = shown.eq(shown.max())
    wins = is_best.sum(axis=1).sort_values(ascending=False, kind="stable")
    named = ", ".join(f"{results.title(name)} on {wins[name]}" for name in wins.index[wins > 0])
    ties = " (ties count for each)" if (is_best.sum() > 1).any() else ""
    yield f"Highest accuracy on {where}: {named}{ties}."
    tests = compare_with(results, splits, CLEAN, reference)
    tests = tests[tests["count"] > 0]
    if len(tests):
        better = int((tests["significant"] & (tests["difference"] > 0)).sum())
        worse = int((tests["significant"] & (tests["difference"] < 0)).sum())
        yield (
            f"{results.title(reference)} against the others on {where}: significantly better in "
            f"{better} of {counted(len(tests), 'comparison')}, significantly worse in {worse}, not "
            f"significant in {len(tests) - better - worse} (5%, Holm's correction)."
        )


def _perturbed_findings(results: Results, splits: str) -> Iterator[str]:
    for family in results.families(splits):
        present = [name for name in family if results.columns(splits, name)]
        if not present:
            continue
        name = tables_of.main_budget(results, splits, present)
        table = tables_of.perturbed_table(results, splits, name)
        drops = {
            line.title: line.cells[-1].value
            for line in table.lines
            if line.cells[-1].value is not None and not line.cells[-1].footnote
        }
        if len(drops) > 1:
            least = sorted(drops.items(), key=lambda item: item[1] or 0.0)
            setup = results.perturbations[name]
            where = f"{setup.label}, {setup.mode} ({splits} splits)"
            told = ", ".join(f"{title} {drop:.1f}%" for title, drop in least[:3])
            yield f"Smallest average drop under {where}: {told}."


def render_page(
    material: Material,
    parts: Sequence[Section] | None = None,
    *,
    title: str = "",
    reference: str | None = None,
) -> str:
    """The whole page, the same for the same material; `parts` are its sections if already made."""
    results = material.results
    parts = sections(material, reference=reference) if parts is None else parts
    name = results.reference(reference) if results.variants else ""
    runs = results.runs
    failed = runs[runs["status"] == "failed"]
    content = {
        "title": title or material.title or TITLE,
        "findings": findings(results, reference),
        "counts": _counts(results),
        "sections": parts,
        "reference": results.title(name) if name else "",
        # Escaped by `explorer_json`: it holds no letter that could end the element.
        "nodes": Markup(explorer_json(material.details)) if material.details else "",  # noqa: S704
        "failed": [
            {
                **row,
                "title": results.title(row["variant"]),
                "label": "none"
                if row["perturbation"] == CLEAN
                else results.perturbations[row["perturbation"]].label,
            }
            for row in failed.to_dict("records")
        ],
        "commands": material.commands,
        "splits": results.kinds,
        "seeds": sorted(runs["seed"].unique()) if len(runs) else [],
        "results": results,
        "graph_table": tables_of.graph_table(results),
        "version": __version__,
    }
    filters: dict[str, Callable[..., Any]] = {
        "downloads": downloads,
        "grids": grids,
        "headline": headline,
    }
    return render("report.html.j2", content, SCRIPTS, filters)


def downloads(table: Table) -> list[dict[str, str]]:
    """The table as files to save: data URLs work from a disk, without a server or a script."""
    texts = {
        "CSV": ("csv", table.to_csv()),
        "Markdown": ("md", table.to_markdown_with_caption()),
        "LaTeX": ("tex", table.to_latex()),
    }
    return [
        {
            "title": title,
            "file": f"{table.name}.{suffix}",
            "address": f"data:text/plain;charset=utf-8,{quote(text, errors='replace')}",
        }
        for title, (suffix, text) in texts.items()
    ]


def grids(plots: Sequence[Plot]) -> list[tuple[str, list[Plot]]]:
    """Neighbours with one caption together, which is then printed once below them."""
    counts = Counter(plot.caption for plot in plots)
    groups = groupby(plots, lambda plot: plot.caption if counts[plot.caption] > 1 else "")
    return [(caption, list(group)) for caption, group in groups]


def headline(caption: str) -> tuple[str, str]:
    """A caption's first words, up to a pause, and the rest of it.

    >>> headline("Accuracy in percent; mean ± standard deviation.")
    ('Accuracy in percent', '; mean ± standard deviation.')
    """
    pause = re.search(r"[;:.](?=\s)| \(", caption)
    cut = pause.start() if pause else len(caption)
    return caption[:cut], caption[cut:]
