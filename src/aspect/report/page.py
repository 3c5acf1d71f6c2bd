"""The page of a report: findings, sections with tables and figures, nodes of the models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from markupsafe import Markup

from aspect import __version__
from aspect.errors import counted
from aspect.evaluation.details import Details
from aspect.report import benchmark_tables as tables_of
from aspect.report import model_plots as models
from aspect.report.explorer import explorer_json
from aspect.report.html import render
from aspect.report.plots import Plot, accuracy_plots, short, sweep_plots
from aspect.report.results import CLEAN, Results
from aspect.report.sources import Material
from aspect.report.statistics import (
    FEWEST_TO_TEST,
    compare_with,
    drops,
    ranking,
    score_means,
    tally,
)
from aspect.report.tables import Table

Named = TypeVar("Named", Table, Plot)

TITLE = "Node embeddings, compared"
SCRIPTS = ("sort.js", "tips.js", "explorer.js", "print.js")
MOST_NAMED = 10  # models whose correlations are printed one by one
MOST_TRAININGS = 3  # models before the others are folded
FEWEST_TO_COMPARE = 2  # methods

METATTACK = (
    "Metattack knows the classes of the split's training nodes. Its unrolled solver is that of "
    "the original and of published tables; the implicit one is another, usually stronger attack."
)


@dataclass(frozen=True)
class Section:
    """A part of the page. The template has its title and text, and more to show for some names."""

    name: str  # of the template's `WORDS`: the anchor
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    remark: str = ""  # sentences after the text
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
    is_scored = len(results.scores) > 0
    parts: list[Section] = []
    if is_scored:
        parts += _scored(results, with_published, reference)
    parts += _models(details)
    if details:
        parts.append(Section("nodes"))
    if is_scored:
        trainings = {name: tables_of.run_table(results, name) for name in ("runtime", "health")}
        parts += [Section(name, (table,)) for name, table in trainings.items() if table.lines]
    if (results.runs["status"] == "failed").any():
        parts.append(Section("failed"))
    return _with_unique_names([*parts, Section("again")])


def _scored(results: Results, with_published: bool, reference: str | None) -> Iterator[Section]:
    head = results.reference(reference)
    plots = [plot for splits in results.kinds for plot in accuracy_plots(results, splits, head)]
    if plots:
        yield Section("accuracy", plots=tuple(plots))
    strict, *others = tables_of.CLEAN_TABLES
    clean, more = (
        tables_of.clean_tables(results, with_published=with_published, metrics=metrics)
        for metrics in ([strict], others)
    )
    more += tables_of.shortfall_tables(results) if with_published else []
    if clean:
        yield Section("clean", tuple(clean), more_title="Other metrics", more_tables=tuple(more))
    yield from _perturbed(results, with_published)
    ablation = tables_of.ablation_tables(results, with_published=with_published)
    if ablation:
        yield Section("ablation", tuple(ablation))
    sweeps = tables_of.sweeps(results)
    if sweeps:
        yield Section(
            "sweep",
            plots=tuple(sweep_plots(sweeps)),
            more_title="The same as tables",
            more_tables=tuple(sweep.table for sweep in sweeps),
        )
    tests, left_out = tables_of.significance_tables(results, reference)
    remark = ""
    if left_out:
        remark = (
            f"Left out: {', '.join(left_out)}; with fewer than {FEWEST_TO_TEST} splits in common "
            "no difference can be significant, since a sign-flip test then gives no p below 5%."
        )
    if tests or remark:
        yield Section("significance", tuple(tests), remark=remark)


def _perturbed(results: Results, with_published: bool) -> Iterator[Section]:
    """One budget of every perturbation; the others are folded."""
    tables = tables_of.perturbed_tables(results, with_published=with_published)
    main = {
        results.table_name(f"perturbed-{name}", splits)
        for splits in results.kinds
        for name in tables_of.main_perturbations(results, splits)
    }
    if tables:
        has_metattack = any(setup.kind == "metattack" for setup in results.perturbations.values())
        yield Section(
            "perturbed",
            tuple(table for table in tables if table.name in main),
            remark=METATTACK * has_metattack,
            more_title="Drops on each graph, and other budgets",
            more_tables=(
                *tables_of.drop_tables(results),
                *(table for table in tables if table.name not in main),
            ),
        )


def _models(details: Sequence[Details]) -> Iterator[Section]:
    """Figures of the models, but for their maps; parts without a figure are left out."""
    rivals: dict[str, models.Rival] = {
        "evidence": "cost_gap",
        "sensitivity": "sensitivity_gap",
        "homophily": "homophily",
    }
    plots_of = {
        "gate": models.density_plots(details),
        **{name: models.gate_plots(details, rival) for name, rival in rivals.items()},
        "filters": models.filter_plots(details),
        "attacked": models.attacked_plots(details),
    }
    for name, plots in plots_of.items():
        if plots:
            remark = _correlated(details, rivals[name]) if name in rivals else ""
            yield Section(name, plots=tuple(plots), remark=remark)
    kinds = models.training_plots(details)
    if any(kinds):
        more = tuple(plot for plots in kinds for plot in plots[MOST_TRAININGS:])
        yield Section(
            "training",
            plots=tuple(plot for plots in kinds for plot in plots[:MOST_TRAININGS]),
            more_title=counted(len(more), "more figure"),
            more_plots=more,
        )


def _correlated(details: Sequence[Details], rival: models.Rival) -> str:
    """Spearman's correlations of the gate, as a sentence."""
    values = models.correlations(details, rival)
    if not values:
        return ""
    several = len({model.title for model, _ in values}) > 1
    words = "; ".join(
        f"{models.full_title(model) if several else short(model.graph)} {value:.2f}"
        for model, value in values[:MOST_NAMED]
    )
    more = f"; and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else ""
    what = rival.replace("_", " ").replace("homophily", "local homophily")
    return f"Spearman's rank correlation of gate and {what}: {words}{more}."


def _with_unique_names(parts: Sequence[Section]) -> list[Section]:
    """Names become ids and files; untrusted ones that became equal are numbered."""
    taken: Counter[str] = Counter()

    def unique(name: str) -> str:
        taken[name] += 1
        return name if taken[name] == 1 else unique(f"{name}-{taken[name]}")

    def renamed(items: Iterable[Named]) -> tuple[Named, ...]:
        return tuple(replace(item, name=unique(item.name)) for item in items)

    return [
        replace(
            part,
            tables=renamed(part.tables),
            plots=renamed(part.plots),
            more_tables=renamed(part.more_tables),
            more_plots=renamed(part.more_plots),
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
    return {
        "runs": len(runs),
        "failed": int((runs["status"] == "failed").sum()),
        "methods": len(results.methods),
        "variants": len(results.variants) - len(results.methods),
        "graphs": len(results.graphs),
        "perturbations": len(results.perturbations),
        "seeds": runs["seed"].nunique(),
        "splits": len(splits),
    }


def _overview(results: Results) -> Iterator[str]:
    counts = _counts(results)
    variants = f" and {counted(counts['variants'], 'variant')}" if counts["variants"] else ""
    states = ["clean"] * bool((results.runs["perturbation"] == CLEAN).any())
    if counts["perturbations"]:
        states.append(f"under {counted(counts['perturbations'], 'perturbation')}")
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
    means = score_means(results, splits).dropna(axis=1, how="all")
    if len(means) < FEWEST_TO_COMPARE:
        return
    if ranked := ranking(results, splits):
        best = ranked.ranks.head(3).items()
        first = ", ".join(f"{results.title(str(name))} {rank:.1f}" for name, rank in best)
        over = f"{counted(ranked.num_graphs, 'clean graph')} ({splits} splits)"
        yield f"Best average ranks over {over}: {first}."
    where = f"{counted(means.shape[1], 'clean graph')} ({splits} splits)"
    shown = means.round(2)
    is_best = shown.eq(shown.max())
    wins = is_best.sum(axis=1).sort_values(ascending=False, kind="stable")
    named = ", ".join(f"{results.title(name)} on {wins[name]}" for name in wins.index[wins > 0])
    ties = " (ties count for each)" if (is_best.sum() > 1).any() else ""
    fewer = tables_of.fewer_splits_note(results, splits)
    yield f"Highest accuracy on {where}: {named}{ties}. {fewer}".rstrip()
    tests = compare_with(results, splits, CLEAN, reference)
    better, same, worse = tally(tests)
    if number := better + same + worse:
        yield (
            f"{results.title(reference)} against the others on {where}: significantly better in "
            f"{better} of {counted(number, 'comparison')}, significantly worse in {worse}, not "
            f"significant in {same} (5%, Holm's correction)."
        )


def _perturbed_findings(results: Results, splits: str) -> Iterator[str]:
    """The smallest drops of methods that ran on every graph."""
    for name in tables_of.main_perturbations(results, splits):
        graphs = results.columns(splits, name)
        rows = results.rows(splits, name, graphs)
        lost = drops(results, splits, name)["drop"].unstack("graph")
        whole = lost.reindex(index=rows, columns=graphs).dropna()
        least = whole.mean(axis=1).sort_values(kind="stable")
        if len(least) > 1:
            setup = results.perturbations[name]
            where = f"{setup.label}, {setup.mode} ({splits} splits)"
            words = [
                f"{results.title(str(row))} {drop:.1f}%" for row, drop in least.head(3).items()
            ]
            fewer = tables_of.fewer_splits_note(results, splits, name)
            yield f"Smallest average drop under {where}: {', '.join(words)}. {fewer}".rstrip()


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
    runs, rare = results.runs, ("failed", "variants", "perturbations")
    failed = runs[runs["status"] == "failed"].to_dict("records")
    content = {
        "title": title or material.title or TITLE,
        "findings": findings(results, reference),
        "counts": {
            name: count for name, count in _counts(results).items() if count or name not in rare
        },
        "sections": parts,
        "grids": grids,
        "fewest_to_test": FEWEST_TO_TEST,
        "reference": results.title(results.reference(reference)) if results.variants else "",
        # Escaped by `explorer_json`: it holds no letter that could end the element.
        "nodes": Markup(explorer_json(material.details)) if material.details else "",  # noqa: S704
        "failed": failed,
        "commands": material.commands,
        "seeds": sorted(runs["seed"].unique()) if len(runs) else [],
        "results": results,
        "graph_table": tables_of.graph_table(results),
        "version": __version__,
    }
    return render("report.html.j2", content, SCRIPTS)


def grids(plots: Sequence[Plot]) -> list[tuple[str, list[Plot]]]:
    """Neighbours with one caption together, which is then printed once below them."""
    counts = Counter(plot.caption for plot in plots)
    groups = groupby(plots, lambda plot: plot.caption if counts[plot.caption] > 1 else "")
    return [(caption, list(group)) for caption, group in groups]
