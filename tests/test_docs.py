"""The documents name equations, files and functions that exist."""

import ast
import re
import warnings
from pathlib import Path

import pytest

import aspect
from aspect.experiment.plan import load_plan
from aspect.methods.registry import find_method
from aspect.settings import find_experiment

PACKAGE = Path(aspect.__file__).parent
DOCS = Path(__file__).parents[1] / "docs"
PAPER_IN_CODE = DOCS / "paper_in_code.md"

PYTHON = PAPER_IN_CODE.with_name("python.md")

NUMBERED_EQUATIONS = 32  # in the paper, appendix included


def rows_of(path):
    """The cells of every row of the document's tables, headings left out."""
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [row for row in cells if any("`" in cell for cell in row)]


def definitions(path):
    """Functions and classes of a module, methods as `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            names |= {f"{node.name}.{method.name}" for method in methods}
    return names


def test_the_python_of_the_api_page_runs(tmp_path, monkeypatch, capsys):
    """All blocks of the page, one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PYTHON.read_text(encoding="utf-8"), re.DOTALL)
    scope = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", aspect.GraphWarning)
        for block in blocks:
            exec(compile(block, PYTHON.name, "exec"), scope)  # noqa: S102 - our own text
    said = capsys.readouterr().out
    assert "Embedder('grace', epochs=10, width=64, seed=1) [fitted: 10 epochs on" in said
    assert "LabelledGraph(900 nodes, 5,433 edges, 16 features" in said
    assert len(blocks) > 5


def test_the_python_of_the_questions_runs():
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", aspect.GraphWarning)
        exec(compile(code, "faq.md", "exec"), scope)  # noqa: S102 - our own text
    assert len(scope["data"].z) == scope["data"].num_nodes == 40


def test_the_api_page_names_what_the_package_exports():
    (row,) = re.findall(r"^\| `aspect` \| (.*) \|$", PYTHON.read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(aspect.__all__)


def test_every_function_that_the_paper_in_code_names_exists():
    missing = []
    for *_, file, functions in rows_of(PAPER_IN_CODE):
        module = PACKAGE / file.strip("`")
        known = definitions(module) if module.is_file() else set()
        missing += [
            f"{file}: {name}" for name in re.findall(r"`([\w.]+)`", functions) if name not in known
        ]
        missing += [file] if not module.is_file() or not functions else []
    assert missing == []


def test_every_numbered_equation_of_the_paper_is_there_once_and_in_order():
    first_cells = [row[0] for row in rows_of(PAPER_IN_CODE)]
    numbers = [int(cell[1:-1]) for cell in first_cells if re.fullmatch(r"\(\d+\)", cell)]
    assert numbers == list(range(1, NUMBERED_EQUATIONS + 1))


def test_equations_are_cited_with_the_titles_of_the_table():
    """`Eq. (9), gate` in a docstring or a comment of a method names Eq. (9) of the table."""
    titles = {row[0]: row[1] for row in rows_of(PAPER_IN_CODE) if row[0].startswith("(")}
    wrong, cited = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = re.sub(r"\s+(# )?", " ", path.read_text("utf-8"))
        for number, words in re.findall(r"Eq\. (\(\d+\)), (.{50})", text):
            cited.add(number)
            if not words.startswith(titles.get(number, "?")):
                wrong.append(f"{path.name}: Eq. {number}, {words}")
    assert wrong == []
    assert {f"({number})" for number in range(8, 21)} <= cited


def test_the_plan_of_the_benchmark_page_is_one(tmp_path):
    (text,) = re.findall(
        r"```yaml\n(.*?)```", (DOCS / "benchmark.md").read_text("utf-8"), re.DOTALL
    )
    path = tmp_path / "my-plan.yaml"
    path.write_text(text, encoding="utf-8")
    plan = load_plan(str(path))
    assert [entry.name for entry in plan.entries] == ["aspect", "grace", "pruned", "raw"]


def test_every_page_is_in_the_contents_once():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}(.*?)```", index, flags=re.DOTALL)
    lines = [line for tree in trees for line in tree.splitlines()]
    listed = [line for line in lines if re.fullmatch(r"[\w/]+", line)]
    made = {"command_line", "datasets", "json"}  # by the build
    written = [*DOCS.glob("*.md"), *DOCS.glob("notebooks/*.ipynb")]
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in written} | made
    assert sorted(listed) == sorted(pages - {"index"})


def test_the_readme_is_short():
    assert len((DOCS.parent / "README.md").read_text(encoding="utf-8").split()) <= 1000


def test_the_version_is_the_same_everywhere():
    root = DOCS.parent
    assert f'version = "{aspect.__version__}"' in (root / "pyproject.toml").read_text("utf-8")
    assert f"version: {aspect.__version__}" in (root / "CITATION.cff").read_text("utf-8")
    assert f"version = {{{aspect.__version__}}}" in (DOCS / "faq.md").read_text("utf-8")


# The paper names no values of these.
LEFT_OPEN = {"edge_drop", "column_mask", "interval", "perturbation_steps"}


@pytest.mark.parametrize("method", ["aspect", "aspect-s"])
def test_every_default_that_differs_from_the_paper_is_named(method):
    settings = find_experiment(method, None, "paper")[0].settings
    defaults = find_method(method).config().model_dump()
    differ = {name for name, value in settings.items() if value != defaults[name]}
    _, differences = PAPER_IN_CODE.read_text("utf-8").split("## Differences from the paper")
    bullets = [line.partition(":")[0] for line in differences.splitlines() if line[:2] == "- "]
    named = set(re.findall(r"`(\w+)`", " ".join(bullets)))
    assert len(differ) > 10
    assert differ - LEFT_OPEN - named == set()
