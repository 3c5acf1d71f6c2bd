"""The perturbation file: prefixes for all budgets, one graph only, no damage unnoticed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aspect.attacks import trace as trace_module
from aspect.attacks.flips import apply_flips
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.attacks.trace import TRACE_FORMAT, AttackedGraph, Trace
from aspect.attacks.trace_file import TraceFile
from aspect.data.features import dense
from aspect.data.graph import LabelledGraph
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import CheckpointError, FileError, GraphError, SettingsError
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.perturbed import perturb
from attacks.attempts import labelled_graph, plan
from attacks.graphs import edge_set

LABELLED = labelled_graph()
EDGES = LABELLED.graph.num_edges
FACTS = plan(LABELLED, "random", flips=EDGES // 2).facts


def a_trace(count=EDGES // 2, facts=FACTS, state=None):
    nodes = facts.graph.nodes
    pairs = torch.combinations(torch.arange(nodes))
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(4))[:count]
    return Trace(facts, pairs[order, 0] * nodes + pairs[order, 1], state or {})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


def test_everything_comes_back_as_it_was(path):
    state = {"weights": torch.rand(3, 2), "made": torch.tensor(7)}
    before = a_trace(state=state)
    before.write(path)
    after = Trace.read(path)
    assert after.facts == before.facts
    assert torch.equal(after.keys, before.keys)
    torch.testing.assert_close(dict(after.state), state)


def test_the_manifest_tells_a_reader_without_us_what_it_is(path):
    a_trace(count=30).write(path)
    manifest = read_tensors(path)[1]
    assert manifest["kind"] == "perturbation"
    assert manifest["flips"] == 30
    assert manifest["reached"] == 30 / EDGES
    assert manifest["facts"]["graph"]["sha256"] == FACTS.graph.sha256
    assert set(manifest["facts"]["versions"]) >= {"aspect", "torch", "python"}


def test_a_flip_takes_four_bytes_while_that_is_enough(path):
    sizes = []
    for count in (10, 110):
        a_trace(count).write(path)
        sizes.append(path.stat().st_size)
    assert 400 - 16 <= sizes[1] - sizes[0] <= 400 + 16


@pytest.mark.parametrize(("nodes", "kind"), [(46_340, torch.int32), (46_341, torch.int64)])
def test_large_graphs_take_eight(path, nodes, kind):
    graph = AttackedGraph(name="large", sha256="0" * 64, nodes=nodes, edges=nodes)
    keys = torch.tensor([nodes * (nodes - 2) + nodes - 1, 1])
    Trace(FACTS.model_copy(update={"graph": graph}), keys).write(path)
    assert read_tensors(path)[0]["flips"].dtype == kind
    assert Trace.read(path).first(1).tolist() == [[nodes - 2, nodes - 1]]


@given(st.floats(0.01, 0.5))
def test_a_budget_is_a_prefix(share):
    trace = a_trace()
    count = round(share * EDGES)
    if not 1 <= count <= len(trace.keys):
        return
    flips = trace.flips(share)
    assert flips.tolist() == trace.first(len(trace.keys))[:count].tolist()
    assert bool((flips[:, 0] < flips[:, 1]).all())


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.6, rf"holds {EDGES // 2} flips, a budget of 0\.5.*wish for {round(0.6 * EDGES)}"),
        (1e-4, "allows no flip of"),
        (0.0, r"share in \(0, 1\]\. Got 0"),
        (1.2, r"share in \(0, 1\]\. Got 1\.2"),
        (float("nan"), r"share in \(0, 1\]\. Got nan"),
    ],
)
def test_budgets_beyond_what_it_holds_are_refused(share, words):
    with pytest.raises(SettingsError, match=words):
        a_trace().flips(share)


# What it does to a graph


def test_edges_and_features_change_at_the_same_rate():
    trace = a_trace()
    perturbed = trace.apply(LABELLED, 0.25)
    pairs = {tuple(pair) for pair in trace.flips(0.25).tolist()}
    assert edge_set(perturbed) == edge_set(LABELLED.graph) ^ pairs
    kept = (dense(perturbed.features) != 0).float().mean()
    assert 0.6 < kept < 0.9
    alone = trace.apply(LABELLED, 0.25, features=False)
    assert alone.features is LABELLED.graph.features
    assert torch.equal(alone.edge_index, perturbed.edge_index)


def test_masks_nest_over_budgets():
    less, more = (dense(a_trace().apply(LABELLED, share).features) for share in (0.1, 0.4))
    assert bool(((more != 0) <= (less != 0)).all())
    assert bool(((more == less) | (more == 0)).all())


@pytest.mark.parametrize("split", [0, 3])
def test_random_flips_are_those_of_the_benchmark(tmp_path, split):
    request = AttackRequest(kind="random", budget=0.3)
    (planned,) = plan_attacks(LABELLED, "small", request, [split], torch.device("cpu"))
    path = tmp_path / "random.safetensors"
    run_attack(planned, TraceFile.open(path, planned.facts))
    for budget in (0.1, 0.3):
        expected = perturb(LABELLED.graph, Perturbation(kind="random", budget=budget), split)
        found = Trace.read(path).apply(LABELLED, budget)
        assert torch.equal(found.edge_index, expected.edge_index)
        assert torch.equal(dense(found.features), dense(expected.features))


def one_label(labelled):
    labels = labelled.labels.clone()
    labels[5] = (labels[5] + 1) % 3
    return replace(labelled, labels=labels)


def one_feature(labelled):
    features = dense(labelled.graph.features).clone()
    features[2, 3] += 1
    return replace(labelled, graph=replace(labelled.graph, features=features))


def one_edge(labelled):
    return replace(labelled, graph=apply_flips(labelled.graph, torch.tensor([[0, 1]])))


@pytest.mark.parametrize(
    ("change", "mend"),
    [
        (one_label, "Read features and labels as"),
        (one_feature, "Read f"),
        (one_edge, "Attack this"),
    ],
)
def test_another_graph_is_refused(change, mend):
    other: LabelledGraph = change(LABELLED)
    words = rf"belongs to the graph 'small' with 60 nodes, {EDGES} edges and sha256 .*Got one with"
    with pytest.raises(GraphError, match=rf"{words}.*{mend}"):
        a_trace().apply(other, 0.1)


# Damage, and files of other kinds


def test_every_changed_byte_is_noticed(path):
    a_trace(count=5).write(path)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            Trace.read(path)


@pytest.mark.parametrize("eighth", range(8))
def test_a_truncated_file_is_refused(path, eighth):
    a_trace().write(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * eighth // 8])
    with pytest.raises(CheckpointError, match=r"is damaged|Cannot read"):
        Trace.read(path)


def test_a_newer_file_asks_for_an_upgrade(path, monkeypatch):
    a_trace().write(path)
    with monkeypatch.context() as patch:
        patch.setattr(trace_module, "TRACE_FORMAT", TRACE_FORMAT - 1)
        with pytest.raises(CheckpointError, match=r"perturbation format 1, newer .*Upgrade"):
            Trace.read(path)
    monkeypatch.setattr("aspect.data.tensors.FORMAT_VERSION", 0)
    with pytest.raises(CheckpointError, match=r"has format 1, newer .*Upgrade"):
        Trace.read(path)


def test_other_files_are_refused(path, tmp_path):
    with pytest.raises(FileError, match="There is no perturbation file at"):
        Trace.read(path)
    with pytest.raises(FileError, match="There is no perturbation file at"):
        Trace.read(tmp_path)
    write_tensors(path, {"w": torch.ones(2)}, {"kind": "model"})
    with pytest.raises(CheckpointError, match="is not a perturbation but a model"):
        Trace.read(path)
    path.write_text("source,target\n1,2\n")
    with pytest.raises(CheckpointError, match="damaged or not a safetensors file"):
        Trace.read(path)


def forged(path, keys=None, **changes):
    """A file with a right digest and wrong content: what someone might send us."""
    facts = {**FACTS.model_dump(mode="json"), **changes}
    tensors = {} if keys is None else {"flips": keys}
    manifest = {"kind": "perturbation", "trace_format": TRACE_FORMAT, "facts": facts}
    write_tensors(path, tensors, manifest)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (None, "it holds no flips"),
        (torch.tensor([[1]]), "one list of integers"),
        (torch.tensor([1.0]), "one list of integers"),
        (torch.tensor([1, 2, 1]), "0 that are none, and 1 twice"),
        (torch.tensor([-1]), "1 that are none"),
        (torch.tensor([60]), "1 that are none"),  # (1, 0)
        (torch.tensor([61]), "1 that are none"),  # (1, 1)
        (torch.tensor([60 * 60 + 1]), "1 that are none"),
    ],
)
def test_numbers_that_are_no_pairs_are_refused(path, keys, words):
    forged(path, keys)
    with pytest.raises(CheckpointError, match=words):
        Trace.read(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "prayer"}, r"\(kind\)"),
        ({"split": "first"}, r"\(split\)"),
        ({"mask_seed": 2**70}, r"\(mask_seed\)"),
        ({"graph": None}, r"\(graph\)"),
        ({"graph": {"name": "g", "sha256": "0", "nodes": 3, "edges": 0}}, r"\(graph\.edges\)"),
        ({"graph": {"name": "g", "sha256": "0", "nodes": 0, "edges": 1}}, r"\(graph\.nodes\)"),
        ({"unheard": 1}, r"\(unheard\)"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(path, changes, words):
    forged(path, torch.tensor([1]), **changes)
    with pytest.raises(CheckpointError, match=words):
        Trace.read(path)


def test_the_forger_can_also_be_honest(path):
    forged(path, torch.tensor([1]))
    assert Trace.read(path).first(1).tolist() == [[0, 1]]


def test_the_digest_of_a_budget_stays_when_the_attack_goes_on():
    short, long = a_trace(count=EDGES // 4), a_trace(count=EDGES // 2)
    assert short.digest(0.2) == long.digest(0.2)
    assert long.digest(0.2) != long.digest(0.3)


@pytest.mark.parametrize("change", ["flips", "mask", "graph"])
def test_the_digest_knows_all_that_changes_the_perturbed_graph(change):
    trace = a_trace()
    graph = FACTS.graph.model_copy(update={"sha256": "0" * 64})
    others = {
        "flips": Trace(trace.facts, trace.keys.flip(0)),
        "mask": Trace(FACTS.model_copy(update={"mask_seed": FACTS.mask_seed + 1}), trace.keys),
        "graph": Trace(FACTS.model_copy(update={"graph": graph}), trace.keys),
    }
    assert others[change].digest(0.2) != trace.digest(0.2)


def test_files_of_other_attacks_and_splits_have_other_names():
    other = FACTS.model_copy(update={"kind": "metattack", "solver": "implicit", "split": 3})
    assert FACTS.file_name == f"{FACTS.graph.name}-random-{FACTS.splits}-{FACTS.split}.safetensors"
    assert other.file_name == f"{FACTS.graph.name}-metattack-implicit-{FACTS.splits}-3.safetensors"
