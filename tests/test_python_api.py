"""What a user's script sees: keywords, scikit-learn's contract, reprs, warnings, frames, types."""

import inspect
import pickle
import pydoc
import subprocess
import sys
import textwrap
import warnings
from copy import deepcopy
from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_parameters_default_constructible
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

import aspect
from aspect import Aspect, Embedder, GraphWarning, mixed_graph
from aspect.data.graph import Graph
from aspect.errors import AspectError, GraphError, SettingsError
from aspect.methods.registry import find_method, method_names
from aspect.nn.normalisation import Scaling
from scripts import load_script

SMALL = {"epochs": 2, "width": 8, "order": 2, "gate_width": 8, "device": "cpu"}

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def labelled():
    return mixed_graph(num_nodes=40, num_features=6, seed=1)


@pytest.fixture(scope="module")
def named(labelled):
    """The same graph with ids, its node table and its classes."""
    graph = Graph.build(
        labelled.graph.features, labelled.graph.edge_index, [f"n{k}" for k in range(40)]
    )
    table = pd.DataFrame({"age": np.arange(40.0)}, index=graph.ids)
    return graph, table, labelled.labels.numpy()


@pytest.fixture(scope="module")
def fitted(labelled):
    return Aspect(**SMALL).fit(labelled)


def pickled(model):
    return pickle.loads(pickle.dumps(model))  # noqa: S301 - our own


# Keywords


def test_every_setting_is_a_documented_keyword_of_aspect():
    parameters = inspect.signature(Aspect).parameters
    text = pydoc.render_doc(Aspect, renderer=pydoc.plaintext)
    for name, field in find_method("aspect-s").config.model_fields.items():
        default = None if name == "row_normalise" else field.default  # left to the graph
        assert parameters[name].default == default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        only = "" if name in find_method("aspect").config.model_fields else ", with stable=True"
        only = only if default == field.default else ": True, or False for columns of a node table"
        assert f"{name} (default {default!r}{only}): " in " ".join(text.split())
        first_words = " ".join((field.description or "").split()[:3])
        assert first_words in " ".join(text.split())
    first = ["stable", "seed", "device", "prune", "graph", "scale"]
    assert list(parameters)[:6] == first
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in parameters.values()}


def test_the_typed_keywords_are_those_of_the_settings():
    tables = load_script("tables")
    written = (ROOT / tables.KEYWORDS).read_text(encoding="utf-8")
    assert written == tables.keywords_module(), "run: make tables"


def test_other_methods_list_their_settings():
    table = Embedder.settings("grace")
    assert list(table.index) == list(find_method("grace").config.model_fields)
    assert table.loc["epochs", "default"] == 200
    assert table.loc["epochs", "meaning"] == "Passes over the graph."


def test_unknown_keywords_offer_the_nearest():
    with pytest.raises(SettingsError, match="Did you mean 'width'"):
        Aspect(wdith=3)


# The contract of scikit-learn


def test_params_are_the_arguments():
    model = Aspect(epochs=3, stable=True, seed=4)
    params = model.get_params()
    assert set(params) == set(inspect.signature(Aspect).parameters)
    assert (params["epochs"], params["stable"], params["seed"]) == (3, True, 4)
    assert (params["device"], params["graph"], params["width"]) == (None, None, 512)
    assert Embedder("grace", epochs=3).get_params()["method"] == "grace"
    assert Embedder(**Embedder("grace", epochs=3).get_params()).config.epochs == 3


def test_one_made_of_the_params_is_suited_to_a_table_as_its_model_is():
    numbers = np.random.default_rng(0)
    edges = pd.DataFrame(numbers.integers(0, 12, (40, 2)), columns=["source", "target"])
    table = pd.DataFrame(numbers.normal(size=(12, 1)), columns=["age"])
    model = Aspect(**SMALL)
    same = Aspect(**model.get_params())
    assert np.array_equal(same.fit_transform((edges, table)), model.fit_transform((edges, table)))
    assert model.get_params()["row_normalise"] is None
    assert Aspect(**SMALL, row_normalise=True).get_params()["row_normalise"] is True
    pipe = make_pipeline(model.set_params(graph=(edges, table)), LogisticRegression())
    search = GridSearchCV(pipe, {"aspect__row_normalise": [None, False, True]}, cv=2)
    left_open, off, _ = search.fit(table, np.arange(12) % 2).cv_results_["split0_test_score"]
    assert left_open == off
    assert model.set_params(row_normalise=True).fit().config.row_normalise
    assert not np.array_equal(model.transform(), same.transform((edges, table)))


@pytest.mark.parametrize("make", [Aspect, Embedder])
def test_params_of_a_default_model_are_those_of_its_signature(make):
    check_parameters_default_constructible(make.__name__, make(device=None))


def test_set_params_forgets_what_was_fitted(labelled):
    model = Aspect(**SMALL).fit(labelled)
    assert model.set_params() is model
    assert model.is_fitted
    assert model.set_params(width=4, seed=7) is model
    assert not model.is_fitted
    assert (model.config.width, model.seed, model.config.epochs) == (4, 7, 2)
    same = Aspect(**{**SMALL, "width": 4}, seed=7).fit(labelled).embed(labelled)
    assert torch.equal(model.fit(labelled).embed(labelled), same)
    assert model.set_params(stable=True).name == "aspect-s"
    with pytest.raises(SettingsError, match="Unknown setting 'wdith'"):
        model.set_params(wdith=3)
    assert model.config.width == 4


@pytest.mark.parametrize("make", [lambda: Aspect(**SMALL, stable=True), lambda: Embedder("dgi")])
def test_clones_are_equal_and_unfitted(make):
    model = make()
    copy = clone(model)
    assert type(copy) is type(model)
    assert copy.get_params() == model.get_params()
    assert repr(copy) == repr(model)
    assert not copy.is_fitted


def test_a_method_given_as_a_class_is_an_argument_as_any():
    method = find_method("grace").method
    model = Embedder(method, epochs=3)
    assert clone(model).get_params() == model.get_params()
    assert clone(model).get_params()["method"] is method
    assert repr(model) == "Embedder('grace', epochs=3) [not fitted]"
    assert Embedder.settings(method).equals(Embedder.settings("grace"))


def test_a_clone_shares_the_graph(named):
    model = Aspect(**SMALL, graph=named[0])
    assert clone(model).graph is named[0]


def test_transform_is_embed_as_an_array(labelled, fitted):
    z = fitted.transform(labelled)
    assert isinstance(z, np.ndarray)
    assert z.dtype == np.float32
    assert np.array_equal(z, fitted.embed(labelled).numpy())
    assert np.array_equal(Aspect(**SMALL).fit_transform(labelled, labelled.labels), z)
    assert list(fitted.get_feature_names_out()) == [f"z{k}" for k in range(z.shape[1])]
    assert clone(fitted).set_output(transform="pandas").fit_transform(labelled).shape == z.shape


def test_scikit_learns_own_setting_decides_the_output_unless_the_model_does(named):
    graph, table, _ = named
    model = Aspect(**SMALL, graph=graph).fit()
    with sklearn.config_context(transform_output="pandas"):
        assert list(model.transform(table).index) == list(table.index)
        assert isinstance(clone(model).set_output(transform="default").fit_transform(), np.ndarray)
    assert isinstance(model.transform(table), np.ndarray)


def test_a_table_is_encoded_anew_by_every_fit_transform():
    numbers = np.random.default_rng(0)
    edges = pd.DataFrame(numbers.integers(0, 12, (40, 2)), columns=["source", "target"])
    first, second = (pd.DataFrame(numbers.normal(k, 1 + k, (12, 2))) for k in (0, 50))
    model = Aspect(**SMALL)
    model.fit_transform((edges, first.set_axis(["a", "b"], axis=1)))
    other = (edges, second.set_axis(["a", "c"], axis=1))
    assert np.array_equal(model.fit_transform(other), Aspect(**SMALL).fit(other).transform(other))


def test_rows_of_a_node_table_are_embedded_by_their_ids(named):
    graph, table, labels = named
    model = Aspect(**SMALL, graph=graph).fit(table.iloc[:7], labels[:7])
    whole = Aspect(**SMALL).fit(graph).embed(graph).numpy()
    chosen = table.sample(9, random_state=0)
    numbers = [int(node[1:]) for node in chosen.index]
    assert np.array_equal(model.transform(chosen), whole[numbers])
    assert np.array_equal(model.transform(), whole)
    assert np.array_equal(model.transform(chosen.index.to_numpy()), whole[numbers])
    frame = model.set_output(transform="pandas").transform(chosen)
    assert list(frame.index) == list(chosen.index)
    with pytest.raises(GraphError, match=r"must name a node of the graph\. Not there: 'n99'"):
        Aspect(**SMALL, graph=graph).fit(pd.DataFrame(index=["n99"]))


def test_a_pipeline_with_cross_validation(named):
    graph, table, labels = named
    pipe = make_pipeline(Aspect(**SMALL, graph=graph), LogisticRegression())
    pipe.fit(table, labels, aspect__progress=False)
    scores = cross_val_score(pipe, table, labels, cv=2)
    z = pd.DataFrame(Aspect(**SMALL).fit_transform(graph), index=table.index)
    assert np.array_equal(scores, cross_val_score(LogisticRegression(), z, labels, cv=2))
    search = GridSearchCV(pipe, {"aspect__width": [4, 8]}, cv=2).fit(table, labels)
    assert search.best_estimator_.predict(table[:3]).shape == (3,)


def test_embeddings_beside_columns_of_the_table(named):
    graph, table, labels = named
    embedder = Aspect(**SMALL, graph=graph)
    both = make_union(FunctionTransformer(), embedder).fit_transform(table, labels)
    width = embedder.transform(table).shape[1]
    assert both.shape == (40, 1 + width)
    with_ids = table.rename_axis("id").reset_index()
    columns = ColumnTransformer([("z", embedder, ["id"]), ("age", "passthrough", ["age"])])
    assert np.allclose(columns.fit_transform(with_ids)[:, :width], both[:, 1:])
    columns.set_output(transform="pandas")
    assert list(columns.fit_transform(with_ids).columns[[0, width]]) == ["z__z0", "age__age"]


def test_pipelines_are_shown_with_it(named):
    pipe = make_pipeline(Aspect(**SMALL, graph=named[0]), LogisticRegression())
    assert "Aspect(epochs=2" in repr(pipe)
    assert "Aspect" in pipe._repr_html_()


@pytest.mark.parametrize("name", method_names())
def test_every_method_can_be_pickled(labelled, name):
    known = find_method(name).config.model_fields
    settings = {key: value for key, value in SMALL.items() if key in known and key != "device"}
    model = Embedder(name, device="cpu", **settings)
    assert pickled(model).get_params() == model.get_params()
    z = model.fit(labelled).embed(labelled)
    copy = pickled(model)
    assert torch.equal(copy.embed(labelled), z)
    assert repr(copy) == repr(model)


def test_a_pickle_holds_tensors_of_the_cpu_alone(labelled, monkeypatch):
    moved, cpu = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: moved.append(self) or cpu(self))
    model = Aspect(**SMALL).fit(labelled)
    held = [leaf for leaf in tree_leaves(model.__getstate__()) if isinstance(leaf, torch.Tensor)]
    assert len(held) == len(model.method.state_dict()) + 3  # and the scaling
    assert {id(tensor) for tensor in held} <= {id(tensor) for tensor in moved}
    assert not any(isinstance(value, Scaling) for value in model.__getstate__().values())


def test_a_pickle_of_a_gpu_is_read_where_there_is_none(labelled, monkeypatch):
    model = Aspect(**SMALL).fit(labelled)
    z = model.embed(labelled)
    for asked in (None, "cuda"):
        model._arguments["device"], model.device = asked, torch.device("cuda")
        state = model.__getstate__()
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        copy = Aspect.__new__(Aspect)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            copy.__setstate__(state)
        assert [str(one.message) for one in told] == (
            ["Device 'cuda' is not there: the model is on cpu."] * bool(asked)
        )
        assert (copy.device.type, copy.get_params()["device"]) == ("cpu", None)
        assert torch.equal(copy.embed(labelled), z)


def test_one_with_a_graph_can_be_pickled_and_copied(labelled):
    model = Embedder("raw", device="cpu", graph=labelled).fit()
    for copied in (pickled(model), deepcopy(model)):
        assert np.array_equal(copied.transform(), model.transform())


def test_what_is_asked_too_early_or_without_a_graph():
    with pytest.raises(GraphError, match=r"There is no graph\. Give one here, or as graph=\.\.\."):
        Aspect(**SMALL).fit()
    with pytest.raises(AspectError, match="not fitted yet"):
        Aspect(**SMALL).get_feature_names_out()
    with pytest.raises(SettingsError, match=r"must be default or pandas\. Got 'polars'"):
        Aspect(**SMALL).set_output(transform="polars")


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Aspect(sed=3), r"Unknown setting 'sed' of aspect\. Did you mean 'seed'\?"),
        (lambda: Aspect(stabel=True), r"Did you mean 'stable'\? Known: stable, seed, device, "),
        (lambda: Embedder("grace", divice="cpu"), r"of grace\. Did you mean 'device'\?"),
        (lambda: Aspect(interval=3), "'interval' is one of ASPECT-S: give stable=True as well"),
        (lambda: Aspect(stable=True, interval=3).set_params(stable=False), "one of ASPECT-S"),
        (lambda: Embedder(None), r"must be a subclass of .*Method\. Got NoneType"),
        (lambda: Embedder(Embedder("raw").fit(mixed_graph(num_nodes=40)).method), "Got RawFeat"),
    ],
)
def test_arguments_that_are_none_are_refused_in_a_sentence(build, sentence):
    with pytest.raises(SettingsError, match=sentence):
        build()


# Frames


def test_a_frame_keeps_the_ids(named, labelled, fitted):
    frame = fitted.embed(named[0], as_frame=True)
    assert list(frame.index) == list(named[0].ids)
    assert (frame.index.name, frame.columns[0]) == ("id", "z0")
    assert np.array_equal(frame.to_numpy(), fitted.embed(named[0]).numpy())
    assert list(fitted.embed(labelled, as_frame=True).index) == list(range(40))
    frame.iloc[0, 0] = 99  # the caller's own
    assert fitted.embed(named[0])[0, 0] != 99


def test_integer_ids_of_a_frame_are_integers():
    drawn = networkx.relabel_nodes(networkx.path_graph(5), {k: 10 * k for k in range(5)})
    with pytest.warns(GraphWarning):
        frame = Embedder("raw", device="cpu").fit(drawn).embed(drawn, as_frame=True)
    assert frame.index.tolist() == [0, 10, 20, 30, 40]


# Warnings


def directed():
    return Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 0, 1, 2, 2], [1, 1, 2, 3, 2]]))


def test_what_is_cleaned_is_one_warning_at_the_users_line():
    data = directed()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = Embedder("raw", device="cpu").fit(data)
        model.embed(data)
        model.transform(data)
    (warning,) = caught
    assert warning.category is GraphWarning
    assert warning.filename == __file__
    text = str(warning.message)
    assert "1 self-loops removed" in text
    assert "1 duplicate edges removed" in text
    assert "3 edges had no reverse and were made undirected" in text


def test_options_in_a_warning_are_named_as_keywords():
    frames = (pd.DataFrame({"a": [0, 1], "b": [1, 2]}), pd.DataFrame({"x": [1.0, None, 3.0]}))
    with pytest.warns(GraphWarning, match=r"aspect\.read_graph takes impute, label\.$"):
        Embedder("raw", device="cpu").fit(frames)


def test_graphs_of_ours_and_clean_ones_do_not_warn(labelled):
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        Embedder("raw", device="cpu").fit(labelled)
        Embedder("raw", device="cpu").fit(aspect.data.convert.to_data(labelled))


def test_a_graph_given_at_construction_warns_there_and_once():
    with pytest.warns(GraphWarning, match="had no reverse"):
        model = Embedder("raw", device="cpu", graph=directed())
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        clone(model).fit_transform()
        pickled(model).fit_transform()
        model.set_params(seed=3).fit()


def test_reading_a_file_warns(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\nb,c\n")
    with pytest.warns(GraphWarning, match="duplicate edges removed"):
        aspect.read_graph(tmp_path / "edges.csv", features="degree")


# What is shown


def test_models_show_what_differs_and_whether_they_are_fitted(labelled, fitted):
    assert repr(Aspect()) == "Aspect() [not fitted]"
    assert repr(Aspect(stable=True, width=8, seed=2)) == (
        "Aspect(stable=True, width=8, seed=2) [not fitted]"
    )
    assert repr(Aspect(width=512)) == "Aspect() [not fitted]"
    edges = labelled.graph.num_edges
    assert repr(fitted).endswith(f" [fitted: 2 epochs on 40 nodes and {edges} edges]")
    assert "graph=Graph(40 nodes" in repr(Aspect(graph=labelled.graph))
    assert "graph=<networkx Graph>" in repr(Aspect(graph=_quiet(networkx.path_graph(4))))


def _quiet(graph):
    networkx.set_node_attributes(graph, 1.0, "x")
    return graph


def test_a_loaded_model_says_that_it_is_fitted(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    assert repr(Aspect.load(tmp_path / "model.safetensors", device="cpu")).endswith("[fitted]")


def test_models_in_notebooks(fitted):
    page = fitted._repr_html_()
    assert "<td>width</td><td><b>8</b></td><td>Dimensions of each band" in page
    assert "<td>gate_hops</td><td>3</td>" in page


@pytest.mark.parametrize("nodes", [40, 3000])
def test_graphs_are_one_line(nodes):
    labelled = mixed_graph(num_nodes=nodes, num_features=6, seed=1)
    for shown in (repr(labelled), repr(labelled.graph)):
        assert len(shown) < 100
        assert "\n" not in shown
        assert f"{nodes:,} nodes" in shown


def test_graphs_in_notebooks_tell_what_was_cleaned():
    graph = Graph.build(torch.eye(3), torch.tensor([[0, 1], [1, 2]]), ["<b>", "b", "c"])
    assert repr(graph) == "Graph(3 nodes, 2 edges, 3 features)"
    assert "<li>2 edges had no reverse and were made undirected.</li>" in graph._repr_html_()
    many = Graph.build(torch.eye(30), torch.tensor([[0, 1], [1, 0]]))
    assert repr(many) == "Graph(30 nodes, 1 edge, 30 features (sparse))"


def test_results_of_probes_are_one_line_and_a_table_in_notebooks(labelled, fitted):
    splits = aspect.make_splits("random", labelled.labels, labelled.num_classes, count=2)
    result = aspect.linear_probe(fitted.embed(labelled), labelled.labels, splits)
    assert repr(result).startswith(f"ProbeResult(neutral probe: accuracy {result.strict}%, macro-")
    assert repr(result).endswith("% over 2 splits)")
    assert f"<td>{result.splits[1].strict:.2f}</td>" in result._repr_html_()


def test_the_folder_of_a_run_is_a_model(fitted, labelled, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    assert torch.equal(Embedder.load(tmp_path).embed(labelled), fitted.embed(labelled))


# Types

SCRIPT = """
    import numpy as np
    import pandas as pd
    from torch import Tensor

    from aspect import Aspect, Embedder, load_dataset, read_graph
    from aspect.data import Graph

    model: Aspect = Aspect(epochs=3, width=8, fusion="global", negatives=None).fit("mixed")
    z: Tensor = model.embed("mixed")
    frame: pd.DataFrame = model.embed("mixed", as_frame=True)
    other: Embedder = Embedder("grace", epochs=3).fit(read_graph("mixed"), progress=False)
    other.save("model.safetensors")
    loaded: Embedder = Embedder.load("model.safetensors")
    again: Aspect = Aspect.load("model.safetensors", device="cpu")
    gate: Tensor | None = again.policy(load_dataset("cora"))
    nodes: Graph = read_graph("mixed").graph
    print(z.shape, frame, loaded.get_params()["epochs"], nodes.num_nodes)
"""
WRONG = {
    "Aspect(wdith=3)": "wdith",
    'Aspect(width="a")': "width",
    'Aspect(fusion="glbal")': "fusion",
    "Aspect().fitt()": "fitt",
}


@pytest.mark.slow
def test_mypy_accepts_a_users_script_and_finds_its_mistakes(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT) + "\n".join(WRONG) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache", path],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    first = len(textwrap.dedent(SCRIPT).splitlines()) + 1
    assert [int(line.split(":")[1]) for line in errors] == list(range(first, first + len(WRONG)))
    assert all(word in line for word, line in zip(WRONG.values(), errors, strict=True))


# Frames that are encoded


def people(count, seed):
    draw = np.random.default_rng(seed)
    nodes = pd.DataFrame(
        {"income": draw.normal(5e4, 1e4, count), "job": draw.choice(["cook", "nurse"], count)},
        index=[f"p{k}" for k in range(count)],
    )
    ends = [draw.permutation(nodes.index) for _ in range(2)]
    return pd.DataFrame({"source": ends[0], "target": ends[1]}), nodes


@pytest.mark.filterwarnings("ignore::aspect.GraphWarning")
def test_new_frames_become_features_as_those_of_the_training_did():
    train, other = people(30, 0), people(20, 1)
    model = Embedder("raw", device="cpu").fit(train)
    seen = model.as_seen(other)
    assert seen.encoder == model.encoder
    income = seen.feature_names.index("income")
    expected = (other[1]["income"] - train[1]["income"].mean()) / train[1]["income"].std(ddof=0)
    np.testing.assert_allclose(seen.features[:, income], expected, rtol=1e-4, atol=1e-4)
    assert model.fit(other).as_seen(other).encoder != seen.encoder  # trained anew, fitted anew
    again = pickled(model)
    assert torch.equal(again.embed(other), model.embed(other))


@pytest.mark.filterwarnings("ignore::aspect.GraphWarning")
def test_a_clone_is_suited_to_encoded_tables_as_its_model_is():
    frames = people(30, 0)
    model = Aspect(**SMALL).fit(frames)
    copy = clone(Aspect(**SMALL)).fit(frames)
    assert copy.config == model.config
    assert torch.equal(copy.embed(frames), model.embed(frames))


@pytest.mark.filterwarnings("ignore::aspect.GraphWarning")
def test_structural_features_of_another_graph_have_the_same_columns():
    model = Embedder("raw", device="cpu").fit(networkx.path_graph(40))
    assert model.as_seen(networkx.cycle_graph(50)).num_features == 32
