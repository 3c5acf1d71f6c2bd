"""Methods, attacks and data sets of other packages, in this process."""

import sys
from importlib.metadata import EntryPoint

import pytest
import torch

from aspect import Embedder, mixed_graph, plugins, read_graph
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.registry import attack_info, attack_names, attack_title, find_attack
from aspect.data.source import GraphSource, catalogue, is_dataset, register_dataset
from aspect.errors import AspectError, CheckpointError, DataError, SettingsError, UnknownNameError
from aspect.experiment import spec
from aspect.methods import registry
from aspect.methods.base import MethodConfig
from aspect.methods.controls import Untrained
from aspect.methods.registry import (
    find_method,
    method_names,
    register,
    require_method_name,
    short_name,
)
from aspect.plugins import import_plugin, is_reference, source_sha256
from foreign import registries, write_module  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("registries")


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    """A module in the working directory, with a name of its own for every test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    name = "own_" + "".join(filter(str.isalnum, request.node.name))[:60]
    yield write_module(tmp_path, name)
    sys.modules.pop(name, None)


@pytest.fixture
def offer(monkeypatch):
    """Entry points as installed packages would have them."""

    def enter(*points):
        def entry_points(group):
            return [EntryPoint(name, value, at) for at, name, value in points if at == group]

        monkeypatch.setattr(plugins, "entry_points", entry_points)
        plugins._offered.cache_clear()

    return enter


def test_an_imported_module_adds_its_names(module):
    import_plugin(module)
    assert "mine" in method_names()
    assert "mine-hubs" in attack_names()
    entry = find_method("mine")
    assert entry.name == require_method_name("mine") == f"{module}:Mine"
    assert short_name(entry.name) == "mine" == entry.method.name
    assert attack_info("mine-hubs").name == f"{module}:Hubs"
    assert attack_title(f"{module}:Hubs") == "mine-hubs"
    assert GraphSource.named("mine-graph").graph == f"{module}:small"
    assert GraphSource.named("mine-graph").name == "mine-graph"


def test_a_reference_needs_no_import_before(module):
    assert find_method(f"{module}:Mine").family == "example"
    assert find_attack(f"{module}:Hubs").info.short == "mine-hubs"
    assert read_graph(f"{module}:small").graph.num_nodes == 30
    assert Perturbation(kind=f"{module}:Hubs").label == "mine-hubs 10%"


def test_a_class_is_taken_as_it_is(module):
    mine = getattr(import_plugin(module), "Mine")  # noqa: B009 - of an unknown module
    graph = mixed_graph(num_nodes=30, num_features=6, seed=0)
    named, given = (
        Embedder(method, epochs=2, device="cpu").fit(graph).embed(graph)
        for method in (f"{module}:Mine", mine)
    )
    assert torch.equal(named, given)
    assert Embedder("bgrl").registration is find_method(find_method("bgrl").method)


def test_a_class_without_registration_has_the_settings_that_it_annotates(module):
    bare = find_method(f"{module}:Bare")
    assert bare.config.__name__ == "MineConfig"
    assert (bare.name, bare.method.name, bare.family) == (f"{module}:Bare", "Bare", "own")
    assert find_method(bare.method) is bare
    with pytest.raises(SettingsError, match="Unknown setting 'widht' of Bare"):
        Embedder(bare.method, widht=4)


def test_a_saved_model_is_found_again_by_its_module(module, tmp_path):
    graph = mixed_graph(num_nodes=30, num_features=6, seed=0)
    model = Embedder(f"{module}:Mine", epochs=1, device="cpu").fit(graph)
    model.save(tmp_path / "model.safetensors")
    assert torch.equal(
        Embedder.load(tmp_path / "model.safetensors", device="cpu").embed(graph), model.embed(graph)
    )
    (tmp_path / f"{module}.py").unlink()
    del sys.modules[module], registry._registry[f"{module}:Mine"]  # as in another process
    with pytest.raises(CheckpointError, match=f"There is no module '{module}'"):
        Embedder.load(tmp_path / "model.safetensors")


def test_what_is_no_method_is_refused(module):
    with pytest.raises(SettingsError, match=r"must be a subclass of .*Method\. Got MineConfig"):
        find_method(f"{module}:MineConfig")
    with pytest.raises(SettingsError, match="must be a class under @register_attack"):
        find_attack(f"{module}:Mine")
    with pytest.raises(UnknownNameError, match=r"Unknown name .* 'Main'\. Did you mean 'Mine'\?"):
        find_method(f"{module}:Main")
    unknown = type("Unsettled", (Untrained,), {"__annotations__": {"config": "Missing"}})
    with pytest.raises(SettingsError, match="settings of Unsettled cannot be found"):
        find_method(unknown)
    wrong = type("Unsettled", (Untrained,), {"__annotations__": {"config": int}})
    with pytest.raises(SettingsError, match=r"must be a subclass of MethodConfig\. Got int"):
        find_method(wrong)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("1 / 0", "cannot be imported. ZeroDivisionError: division by zero."),
        ("import sys; sys.exit(3)", "cannot be imported. SystemExit: 3."),
        ("import nowhere_at_all", "cannot be imported. ModuleNotFoundError: No module named"),
        ("def f(:", "cannot be imported. SyntaxError"),
    ],
)
def test_a_module_that_fails_is_one_sentence(module, tmp_path, content, sentence):
    (tmp_path / f"{module}.py").write_text(content)
    with pytest.raises(SettingsError) as caught:
        import_plugin(module)
    assert str(caught.value).startswith(f"The module {module!r} {sentence}")


def test_a_module_that_is_not_there_or_no_module_at_all():
    with pytest.raises(SettingsError, match=r"There is no module 'not_here'\. Install its package"):
        import_plugin("not_here.part")
    with pytest.raises(SettingsError, match=r"named as in Python.*Got 'mine.py/x'"):
        import_plugin("mine.py/x")


def test_names_must_be_new(module, tmp_path):
    import_plugin(module)
    write_module(tmp_path, f"{module}_2")
    with pytest.raises(SettingsError, match=f"Two methods are called 'mine': {module}:Mine and"):
        import_plugin(f"{module}_2")
    for name in ("bgrl", "aspect"):
        with pytest.raises(SettingsError, match=f"Two methods are called '{name}': that of aspect"):
            register(name, config=MethodConfig, paper="", family="own")(type("A", (Untrained,), {}))
    with pytest.raises(SettingsError, match=r"without a colon\. Got 'a:b'"):
        register("a:b", config=MethodConfig, paper="", family="own")(type("A", (Untrained,), {}))
    with pytest.raises(SettingsError, match="Two data sets are called 'cora'"):
        register_dataset("cora")(lambda: None)
    with pytest.raises(SettingsError, match=r"at most 64 small letters.*Got 'Cora'"):
        register_dataset("Cora")(lambda: None)


def test_a_cell_of_a_notebook_may_be_run_again():
    def cell():
        kind = type("Again", (Untrained,), {"__qualname__": "Again"})
        return register("again", config=MethodConfig, paper="", family="own")(kind)

    first, second = cell(), cell()
    assert find_method("again").method is second is not first


def test_entry_points_are_names(module, offer):
    offer(
        ("aspect.methods", "mine", f"{module}:Mine"),
        ("aspect.methods", "bare", f"{module}:Bare"),
        ("aspect.attacks", "mine-hubs", module),
        ("aspect.datasets", "mine-graph", f"{module}:small"),
    )
    assert {"mine", "bare"} <= set(method_names())
    assert module not in sys.modules, "names need no import"
    assert find_method("mine").name == f"{module}:Mine"
    assert find_method("bare").name == f"{module}:Bare"
    assert attack_info("mine-hubs").short == "mine-hubs"
    assert is_dataset("mine-graph")
    entry = catalogue()["mine-graph"]
    assert (entry.num_nodes, entry.note, entry.made_by) == (30, "Thirty nodes.", f"{module}:small")


def test_entry_points_that_cannot_be_right(module, offer):
    offer(
        ("aspect.methods", "twice", "a:B"),
        ("aspect.methods", "twice", "c:D"),
        ("aspect.methods", "gone", "not_here:Mine"),
        ("aspect.methods", "empty", module),
    )
    with pytest.raises(SettingsError, match=r"Two packages offer a method called 'twice': a:B"):
        find_method("twice")
    with pytest.raises(
        SettingsError, match=r"'gone' of the package unknown cannot be used\. There"
    ):
        find_method("gone")
    with pytest.raises(SettingsError, match="does not register it under that name"):
        find_method("empty")
    with pytest.raises(UnknownNameError, match="Did you mean 'gone'"):
        find_method("gonne")


def test_a_data_set_from_outside_is_checked(module):
    register_dataset("broken")(_broken)
    with pytest.raises(DataError, match=r"'broken' cannot be made\. KeyError: 'column'\."):
        read_graph("broken")
    register_dataset("words")(_words)
    with pytest.raises(AspectError, match=r"'words' cannot be made\. .*Got str\."):
        read_graph("words")
    with pytest.raises(SettingsError, match="must be a function that makes a graph"):
        read_graph(f"{module}:NO_FUNCTION")


def _broken():
    raise KeyError("column")


def _words():
    return "no graph"


def test_a_file_with_a_colon_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b.csv").write_text("source,target\n0,1\n")
    assert is_reference("a:b.csv")
    assert not is_dataset("a:b.csv")


def test_the_source_of_a_method_is_its_whole_package(module, tmp_path):
    kind = find_method(f"{module}:Mine").method
    alone = source_sha256(kind)
    assert spec.method_source(f"{module}:Mine") == alone
    (tmp_path / "beside.py").write_text("x = 1\n")
    assert source_sha256(kind) == alone, "a module by itself is its file"
    package = tmp_path / f"{module}_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("WIDTH = 4\n")
    write_module(package, "method", short="packed")
    kind = find_method(f"{package.name}.method:Mine").method
    before = source_sha256(kind)
    assert before == source_sha256(kind) != alone
    (package / "part.py").write_text("WIDTH = 8\n")
    assert source_sha256(kind) != before


def test_the_source_of_a_notebook_is_its_text():
    kind = type("Cell", (Untrained,), {"__module__": "nowhere_at_all"})
    assert source_sha256(kind) == ""
    assert source_sha256(MethodConfig) == source_sha256(MethodConfig) != ""
