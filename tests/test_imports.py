"""Imports point one way: a stage may import itself and what stands before it, nothing later."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import aspect
from aspect.exports import homes_of

PACKAGE = Path(aspect.__file__).parent

# What stands on one line may not import each other.
ORDER = [
    {"errors", "exports"},
    {"config", "keywords", "plugins", "provenance", "randomness"},
    {"data"},
    {"workspace"},
    {"losses"},
    {"nn"},
    {"attacks"},
    {"methods"},
    {"settings"},
    {"training"},
    {"scale"},
    {"estimator"},
    {"testing"},
    {"evaluation"},
    {"experiment"},
    {"report"},
    {"examples"},
    {"cli"},
    {"__main__"},
]
RANK = {stage: rank for rank, stages in enumerate(ORDER) for stage in stages}


def stage_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_stages(source):
    """The stages that a source names, wherever in it: `aspect.data.graph` gives `graph`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            stage = rest.partition(".")[0]
            if package == "aspect" and stage not in ("", "__version__"):
                yield stage


def backward(stage, source):
    """Imports that point to a later stage, or to another one of the same rank."""
    return [
        other for other in imported_stages(source) if other != stage and RANK[other] >= RANK[stage]
    ]


MODULES = sorted(PACKAGE.rglob("*.py"))


def test_no_import_points_backward():
    """`aspect/__init__.py` holds the public names, which are imported at first use."""
    found = {
        str(path.relative_to(PACKAGE)): backward(stage_of(path), path.read_text(encoding="utf-8"))
        for path in MODULES
        if stage_of(path) != "__init__"
    }
    assert {path: stages for path, stages in found.items() if stages} == {}


def test_every_stage_has_a_rank():
    assert {stage_of(path) for path in MODULES} - {"__init__"} == set(RANK)


def test_no_class_name_is_used_twice():
    homes = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from aspect.training.trainer import train",
        "import aspect.training",
        "from aspect import training",
        "def f():\n    from aspect.training.trainer import train",
        "if TYPE_CHECKING:\n    from aspect.training import trainer",
    ],
)
def test_a_backward_import_is_noticed(source):
    assert backward("methods", source) == ["training"]
    assert backward("experiment", source) == []


def test_stages_of_one_rank_are_strangers():
    assert backward("config", "from aspect.randomness import seed_for") == ["randomness"]


# Public names

PACKAGES = [
    path for path in MODULES if path.name == "__init__.py" and "exporting(" in path.read_text()
]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_packages_export_their_public_names(path):
    place = path.parent.relative_to(PACKAGE.parent)
    package = import_module(".".join(place.parts))
    assert set(package.__all__) == set(homes_of(str(path)))
    assert {name for name in dir(package) if name[:2] != "__"} == set(package.__all__)
    modules = {other.stem for other in path.parent.glob("*.py")}
    for name in package.__all__:
        home = import_module(homes_of(str(path))[name])
        assert getattr(package, name) is getattr(home, name)
        assert not name.startswith("_")
        # A function that is called as its module could not be told from it.
        assert name not in modules


def test_most_packages_export():
    assert {path.parent.name for path in PACKAGES} >= {"aspect", "data", "methods", "evaluation"}
    with pytest.raises(AttributeError, match=r"module 'aspect\.data' has no attribute 'Grpah'"):
        aspect.data.Grpah  # noqa: B018 - the access is the test
