"""Make the tables of `results/`, of the README and of `docs/`, or check that they are up to date.

`results/records/KIND.jsonl` gives `results/tables/KIND.csv` (one number per row), `.md` and `.tex`,
and blocks of the README and of docs/results.md; `results/probes.jsonl` gives `.md`, and
`results/poisoned.csv` blocks of docs/robustness.md. Where the records of a plan are not there, or
not complete, the blocks say so. The table of methods, and `keywords.py`, come from the registry.
Run by `make tables`. With `--check` nothing is written: it says which files differ and fails.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Literal, Union, get_args, get_origin

import pandas as pd

if TYPE_CHECKING:
    from aspect.report.plots import Plot

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import poisoned  # noqa: E402
import probes  # noqa: E402
from aspect.config import meaning_of  # noqa: E402
from aspect.errors import AspectError, SettingsError, UnknownNameError, shown  # noqa: E402
from aspect.estimator import settings_for  # noqa: E402
from aspect.experiment.plan import Plan, load_plan  # noqa: E402
from aspect.experiment.store import read_records  # noqa: E402
from aspect.methods.registry import find_method, method_names  # noqa: E402
from aspect.report.benchmark_tables import (  # noqa: E402
    FEWEST_BUDGETS,
    ablation_tables,
    clean_tables,
    drop_tables,
    perturbed_tables,
    rank_tables,
    short_table,
    shortfall_tables,
    significance_tables,
    sweeps,
)
from aspect.report.methods import epoch_cost, paragraphs  # noqa: E402
from aspect.report.results import CLEAN, METRICS, PLACE, Results, collect, family_of  # noqa: E402
from aspect.report.statistics import Place, summarise  # noqa: E402
from aspect.report.tables import Table, csv_safe, slug  # noqa: E402

Kind = Literal["clean", "perturbed", "ablation", "sweep", "stability"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Expected = Mapping[Path, str | None]  # what a file should hold; None: it should not be there

RECORDS, TABLES = "results/records", "results/tables"
PROBES, POISONED = "results/probes.jsonl", "results/poisoned.csv"
README, RESULTS, METHODS = "README.md", "docs/results.md", "docs/methods.md"
ROBUSTNESS = "docs/robustness.md"
FIGURES = "docs/{}-{}.svg"
COMPLETE = "Complete"
RANKED = "random"  # splits of the figure; the other kinds have a table
COMPARED = ("aspect", "aspect-pruned")  # each against all others under perturbations
KEYWORDS = "src/aspect/keywords.py"
INDENT = "    "
END = "<!-- /table -->"
MARK = re.compile(r"^[ \t]*<!-- (?:table:(.+?)|/table) -->[ \t]*$", re.MULTILINE)
BLOCK = re.compile(  # from a beginning to the next end, with no other beginning between them
    r"^([ \t]*<!-- table:([^\n]+?) -->[ \t]*\n)(?:(?!^[ \t]*<!-- table:).)*?"
    r"^([ \t]*<!-- /table -->)",
    re.MULTILINE | re.DOTALL,
)
# Rows of the CSV do not depend on the order of the records: known graphs come first.
GRAPH_ORDER = (
    *("cora", "citeseer", "pubmed", "cornell", "cornell_old", "texas", "wisconsin"),
    *("actor", "chameleon", "squirrel", "chameleon_filtered", "squirrel_filtered"),
    *("amazon_photo", "minesweeper", "tolokers"),
)
NO_PERTURBATION = ("none", "", "", 0.0, "")  # kind, solver, mode, budget and family of clean graphs


def tidy_csv(results: Results, kind: str) -> str:
    """One number per row, for programs: means and stds in percent.

    Args:
        results: of one or several plans.
        kind: `clean`: methods on clean graphs; `perturbed`: under all perturbations, with their
            clean figures; `sweep`: the same for perturbations with several budgets; `ablation`:
            variants that belong to a group; `stability`: everything.
    """
    if kind not in KINDS:
        raise UnknownNameError("kind of table", kind, KINDS)
    frame = pd.concat(
        [summarise(results, metric).assign(metric=metric) for metric in METRICS]
    ).reset_index()
    frame = frame[frame["mean"].notna()]
    states = {
        # Edges alone are another perturbation, though no column of its own says so.
        name: (
            state.kind if state.features else f"{state.kind}-edges",
            csv_safe(state.solver),
            state.mode,
            state.budget,
            family_of(state),
        )
        for name, state in results.perturbations.items()
    }
    columns = ["kind", "solver", "mode", "budget", "family"]
    frame[columns] = [states.get(name, NO_PERTURBATION) for name in frame["perturbation"]]
    frame = frame[_belongs(frame, results, kind)]
    frame["name"] = frame["graph"].map(results.graphs)
    frame["rank"] = [
        GRAPH_ORDER.index(name) if name in GRAPH_ORDER else len(GRAPH_ORDER)
        for name in frame["name"]
    ]
    frame = frame.sort_values(
        ["variant", "rank", "name", "split_kind", "family", "budget"], kind="stable"
    )
    places = frame[["variant", "graph"]].itertuples(index=False, name=None)
    chosen = [results.chosen_by.get(place, "") for place in places]
    # Records of version 0.1 do not tell who chose their settings.
    origin = {"settings": chosen} if any(chosen) else {}
    return pd.DataFrame(
        {
            "method": frame["variant"].map(csv_safe),
            "graph": frame["name"].map(csv_safe),
            "split": frame["split_kind"],
            "selection": frame["metric"].where(frame["metric"] == "optimistic", "strict"),
            "perturbation": frame["kind"],
            "solver": frame["solver"],
            "mode": frame["mode"],
            "budget": frame["budget"].map("{:g}".format),
            "metric": frame["metric"].where(~frame["metric"].isin(METRICS[:2]), "accuracy"),
            "mean": frame["mean"].map("{:.4f}".format),
            "std": frame["std"].map(lambda std: "" if pd.isna(std) else f"{std:.4f}"),
            "splits": frame["splits"],
            "seeds": frame["seeds"],
            **origin,
        }
    ).to_csv(index=False, lineterminator="\n")


def _belongs(frame: pd.DataFrame, results: Results, kind: str) -> pd.Series:
    """Which rows of the summary a table of this kind holds."""
    if kind == "stability":
        return frame["mean"].notna()
    if kind == "ablation":
        return frame["variant"].map(lambda name: bool(results.variants[name].group))
    is_method, is_clean = frame["variant"].isin(results.methods), frame["perturbation"] == CLEAN
    if kind == "clean":
        return is_method & is_clean
    fewest = FEWEST_BUDGETS if kind == "sweep" else 1
    row = ["variant", "graph", "split_kind"]
    places = results.runs[results.runs["perturbation"] != CLEAN][PLACE].drop_duplicates()
    names = {name: family_of(state) for name, state in results.perturbations.items()}
    places = places.assign(family=places["perturbation"].map(names))
    budgets = places.groupby([*row, "family"])["perturbation"].nunique()
    kept = budgets[budgets >= fewest].index
    has_family = pd.MultiIndex.from_frame(frame[[*row, "family"]]).isin(kept)
    has_any = pd.MultiIndex.from_frame(frame[row]).isin(
        pd.MultiIndex.from_frame(kept.to_frame()[row])
    )
    return is_method & (has_family | (is_clean & has_any))


def _clean(results: Results) -> list[Table]:
    tests, _ = significance_tables(results)
    return [
        *clean_tables(results, with_published=True),
        *(replace(table, name=f"clean-{table.name}") for table in (*rank_tables(results), *tests)),
        *shortfall_tables(results),
    ]


def _perturbed(results: Results) -> list[Table]:
    tests = [
        replace(table, name=f"{table.name}-of-{reference}")
        for reference in COMPARED
        if reference in results.variants
        for table in significance_tables(results, reference)[0]
    ]
    return [*perturbed_tables(results, with_published=True), *drop_tables(results), *tests]


def _stability(results: Results) -> list[Table]:
    """Under names of their own: other kinds have such tables too."""
    tables = [
        *perturbed_tables(results, with_published=True),
        *drop_tables(results),
        *ablation_tables(results, with_published=True),
        *significance_tables(results)[0],
    ]
    return [replace(table, name=f"stability-{table.name}") for table in tables]


MAKERS: dict[Kind, Callable[[Results], list[Table]]] = {
    "clean": _clean,
    "perturbed": _perturbed,
    "ablation": lambda results: ablation_tables(results, with_published=True),
    "sweep": lambda results: [sweep.table for sweep in sweeps(results)],
    "stability": _stability,
}


def record_files(root: Path) -> dict[Kind, Path]:
    """The files of records that are there."""
    paths = {kind: root / RECORDS / f"{kind}.jsonl" for kind in KINDS}
    return {kind: path for kind, path in paths.items() if path.is_file()}


def expected_results(root: Path) -> dict[Path, str | None]:
    """What every file made from the records should hold."""
    endings = ("csv", "md", "tex")
    expected: dict[Path, str | None] = {
        root / TABLES / f"{kind}.{ending}": None for kind in KINDS for ending in endings
    }
    for prefix, _ in FIGURE_MAKERS.values():
        expected |= dict.fromkeys(root.glob(FIGURES.format(prefix, "*")))
    blocks: dict[str, str] = {}
    for kind, records in record_files(root).items():
        files, texts = _made_of(records, kind, root)
        expected |= files
        blocks |= texts
    if (probed := root / PROBES).is_file():
        expected[probed.with_suffix(".md")] = probes.tables(probes.read_records(probed))
    if (rows := root / POISONED).is_file():
        blocks |= poisoned.blocks(poisoned.read(rows))
    for name in (README, RESULTS, ROBUSTNESS):
        page = root / name
        if page.is_file():
            text = page.read_text(encoding="utf-8")
            pending = {block: _pending(block) for block in block_names(text) if _pending(block)}
            expected[page] = fill_blocks(text, {**pending, **blocks}, file=name)
    return expected


def _made_of(records: Path, kind: Kind, root: Path) -> tuple[dict[Path, str], dict[str, str]]:
    """What is made of one file of records: files, and blocks of pages by their names."""
    results = collect(read_records(records))
    tables = MAKERS[kind](results)
    markdown = [table.to_markdown_with_caption() for table in tables]
    state = f"{plan_state(load_plan(kind), results)}\n"
    files = {
        root / TABLES / f"{kind}.csv": tidy_csv(results, kind),
        root / TABLES / f"{kind}.md": "\n".join([state, *markdown]),
        root / TABLES / f"{kind}.tex": "\n".join(each.to_latex() for each in tables),
    }
    # Any table by its own name; a kind is all its tables, `clean` the headline alone.
    blocks = {table.name: text for table, text in zip(tables, markdown, strict=True)}
    if tables:
        blocks[kind] = "\n".join(markdown[:1] if kind == "clean" else markdown)
    blocks[f"{kind}-state"] = state
    for name, (path, plot) in _figures(root, kind, results).items():
        files[path] = plot.render("svg").decode()
        blocks[name] = f"![{plot.alt}]({path.name})\n\n{plot.caption}\n"
    if kind == "clean":
        blocks |= _short_block(results, state)
    return files, blocks


def _pending(block: str) -> str:
    """What stands in place of a table whose records are still to come; empty: there is no such."""
    kind = block.partition("-")[0]
    if kind not in KINDS:
        return ""
    return f"Not made yet: its records come from `aspect bench {kind}`.\n"


def plan_state(plan: Plan, results: Results) -> str:
    """How much of a plan's tables, methods by graphs by perturbations, has all splits and seeds."""
    runs = results.runs[results.runs["status"] == "done"].explode("split_numbers")
    runs = runs.drop_duplicates([*PLACE, "split_numbers", "seed"])
    scores = runs.groupby(PLACE).size().to_dict()
    counts: dict[str, list[bool]] = {}
    for place, needed in _planned(plan, results, runs):
        counts.setdefault(place[0], []).append(scores.get(place, 0) >= needed)
    parts = [f"{sum(cells)} of {len(cells)} on {kind} splits" for kind, cells in counts.items()]
    is_whole = all(map(all, counts.values()))
    word = COMPLETE if is_whole else "**Not complete**: `aspect bench` goes on with it"
    axes = "methods on graphs" + (" under perturbations" if results.perturbations else "")
    return f"Plan `{plan.name}`, {axes}: {', '.join(parts)}. {word}."


def _planned(plan: Plan, results: Results, runs: pd.DataFrame) -> Iterator[tuple[Place, int]]:
    """Every place of a plan's tables, and how many scores it needs, one for a split and a seed."""
    names = {state: name for name, state in results.perturbations.items()}
    offered = runs.groupby(["split_kind", "graph"])["split_numbers"].nunique().to_dict()
    for entry, graph in product(plan.entries, plan.graphs):
        limits = [limit for limit in (plan.num_splits, entry.num_splits) if limit]
        for perturbation, seeds in plan.planned(entry.name):
            first, *others = plan.evaluations(graph)
            state, kinds = CLEAN, (first, *others)
            if perturbation is not None:
                state, kinds = names.get(perturbation, ""), (first,)
            for splits in (kind.splits for kind in kinds):
                number = min([offered.get((splits, graph), 1), *limits])
                place = (splits, state, entry.name, graph)
                yield place, number * min(seeds, plan.seeds_for(entry, graph))


def _rank_figures(results: Results) -> dict[str, Plot]:
    """The critical-difference diagram of the headline's splits."""
    from aspect.report.plots import rank_plot

    plot = rank_plot(results, RANKED, results.reference())
    return {RANKED: plot} if plot else {}


def _sweep_figures(results: Results) -> dict[str, Plot]:
    """By graph; of the plan the first methods, as many as one figure holds."""
    from aspect.report.plots import sweep_plots

    return {slug(sweep.graph): next(sweep_plots([sweep])) for sweep in sweeps(results)}


# Beginning of a file's name, and the figures by its end.
FIGURE_MAKERS: dict[Kind, tuple[str, Callable[[Results], dict[str, Plot]]]] = {
    "clean": ("ranks", _rank_figures),
    "sweep": ("sweep", _sweep_figures),
}


def _figures(root: Path, kind: Kind, results: Results) -> dict[str, tuple[Path, Plot]]:
    """Figures of the records, by the names of their blocks, each with its file."""
    if kind not in FIGURE_MAKERS:
        return {}
    prefix, make = FIGURE_MAKERS[kind]
    return {
        f"{kind}-figure-{name}": (root / FIGURES.format(prefix, name), plot)
        for name, plot in make(results).items()
    }


def _short_block(results: Results, state: str) -> dict[str, str]:
    """For pages: the short table, which says what it lacks."""
    short = short_table(results)
    if not short:
        return {}
    lacks = "" if state.endswith(f"{COMPLETE}.\n") else f"{state}\n"
    return {"clean-short": f"{lacks}{short.to_markdown_with_caption()}"}


def expected_docs(root: Path) -> dict[Path, str | None]:
    """What the pages of docs/ with tables made from the registry should hold, and `keywords.py`."""
    expected: dict[Path, str | None] = {}
    path, keywords = root / METHODS, root / KEYWORDS
    if path.is_file():
        text = path.read_text(encoding="utf-8")
        expected[path] = fill_blocks(text, {"methods": methods_table()}, file=METHODS)
    if keywords.is_file():
        expected[keywords] = keywords_module()
    return expected


def methods_table() -> str:
    """All methods as Markdown, family by family; the controls come last."""
    entries = [find_method(name) for name in method_names()]
    head = [
        "method",
        "family",
        "citation",
        "cost per epoch",
        "inductive",
        "mini-batch",
        "what it is",
    ]
    rows = [head, [":--"] * len(head)]
    for entry in sorted(entries, key=lambda entry: (entry.family == "control", entry.family)):
        abilities = (entry.method.inductive, entry.method.mini_batch)
        cells = [
            f"`{entry.name}`",
            entry.family,
            str(entry.paper) or "-",
            epoch_cost(entry),
            *("yes" if able else "no" for able in abilities),
            paragraphs(entry)[0],
        ]
        rows.append([cell.replace("|", r"\|") for cell in cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def keywords_module() -> str:
    """The settings of ASPECT-S, which are all of ASPECT's and its own, as a typed dictionary.

    Type checkers and editors read source code alone: the settings' classes, whose fields are the
    only declaration, tell them nothing about the keywords of `Aspect`.
    """
    lines = [
        '"""Settings of `Aspect` as typed keywords. Made by `make tables` from their classes."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Literal, TypedDict",
        "",
        "",
        "class AspectKeywords(TypedDict, total=False):",
        '    """The keywords; those left out have the defaults that `help(Aspect)` shows."""',
        "",
    ]
    config = find_method("aspect-s").config
    of_tables = settings_for(config, is_encoded=True)
    for name, field in config.model_fields.items():
        meaning = meaning_of(field)
        or_none = " | None" if name in of_tables else ""
        lines.append(f"    {name}: {_type_text(field.annotation)}{or_none}")
        wrapped = textwrap.wrap(f'"""{meaning}"""', 100 - len(INDENT))
        lines += [f"{INDENT}{line}" for line in wrapped]
    return "\n".join(lines) + "\n"


def _type_text(annotation: object) -> str:
    """A type as source code; bounds, which checkers do not know, are left out."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return _type_text(parts[0])
    if kind in (Union, UnionType):
        return " | ".join(map(_type_text, parts))
    if kind is Literal:
        return f"Literal[{', '.join(json.dumps(part) for part in parts)}]"
    return "None" if annotation is NoneType else str(getattr(annotation, "__name__", annotation))


def differing(expected: Expected) -> list[Path]:
    """The files that do not hold what they should."""
    return [
        path
        for path, text in expected.items()
        if _shown(path, path.read_text(encoding="utf-8") if path.is_file() else None)
        != _shown(path, text)
    ]


def _shown(path: Path, text: str | None) -> object:
    """What readers see: of a figure its words and numbers, as versions draw lines differently."""
    is_figure = text is not None and path.suffix == ".svg"
    return re.findall(r"<text[^>]*>([^<]*)</text>", text) if text and is_figure else text


def write_differing(expected: Expected) -> list[Path]:
    """Make every file what it should be; those that changed."""
    changed = differing(expected)
    for path in changed:
        if (text := expected[path]) is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return changed


def block_names(text: str) -> list[str]:
    """The tables that a Markdown text names in `<!-- table:NAME -->`."""
    return [name for name in MARK.findall(text) if name]


def fill_blocks(text: str, tables: Mapping[str, str], *, file: str = README) -> str:
    """The text with every block replaced by the table that it names; all else is kept.

    Args:
        text: Markdown with `<!-- table:NAME -->` and `<!-- /table -->` on lines of their own.
        tables: Markdown by name.
        file: what errors call the text.
    """
    for name in block_names(text):
        if name not in tables:
            known = shown(sorted(tables)) if tables else "none, since there are no records yet"
            raise SettingsError(f"{file} names the table {name!r}. The records give: {known}.")
    for name in MARK.findall(BLOCK.sub("", text)):  # of a beginning; empty for an end
        raise SettingsError(
            f"The block of the table {name!r} in {file} must end with a line '{END}'."
            if name
            else f"{file} has a line '{END}' without a '<!-- table:NAME -->' before it."
        )
    return BLOCK.sub(lambda block: f"{block[1]}\n{tables[block[2]]}\n{block[3]}", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 where a file differs, 2 where records or README are at fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="folder with results/, docs/ and README.md"
    )
    given = parser.parse_args(arguments)
    try:
        return _check(given.root) if given.check else _write(given.root)
    except (AspectError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def _check(root: Path) -> int:
    old, stale = differing(expected_results(root)), differing(expected_docs(root))
    for path in old:
        print(f"{path.relative_to(root)} is not what the records say. Run: make tables")
    for path in stale:
        print(f"{path.relative_to(root)} is not what the registry says. Run: make tables")
    if not old and not stale:
        print(f"The tables are what the records say ({_kinds(root)}).")
    return 1 if old or stale else 0


def _write(root: Path) -> int:
    changed = write_differing({**expected_results(root), **expected_docs(root)})
    for path in changed:
        print(f"{'Wrote' if path.exists() else 'Removed'} {path.relative_to(root)}.")
    if not changed:
        print(f"Nothing changed ({_kinds(root)}).")
    return 0


def _kinds(root: Path) -> str:
    return ", ".join(record_files(root)) or "there are no records"


if __name__ == "__main__":
    sys.exit(main())
