"""The perturbation file: prefixes for all budgets, one graph only, no damage unnoticed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aspect.attacks import file as file_module
from aspect.attacks.base import apply_flips
from aspect.attacks.file import FILE_FORMAT, AttackedGraph, PerturbationFile
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.run import run_attack
from aspect.data import tensors as checkpoint
from aspect.data.features import dense
from aspect.data.graph import LabelledGraph
from aspect.data.splits import make_splits
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import CheckpointError, FileError, GraphError, RunError, SettingsError
from attacks.attempts import Killed, killing, labelled_graph, plan, plan_toy, run
from attacks.graphs import edge_set

LABELLED = labelled_graph()
EDGES = LABELLED.graph.num_edges
FACTS = plan(LABELLED, "random", flips=EDGES // 2).facts
RECORD = Path(__file__).parents[2] / "results" / "perturbations"
DIGEST = "53d0d953cc6f3c3ac508a9b862e825d1537494c7be7ae12f255d48883607a916"  # at 5%


def a_trace(count=EDGES // 2, facts=FACTS, state=None):
    nodes = facts.graph.nodes
    pairs = torch.combinations(torch.arange(nodes))
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(4))[:count]
    return PerturbationFile(facts, pairs[order, 0] * nodes + pairs[order, 1], state or {})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


def test_everything_comes_back_as_it_was(path):
    state = {"weights": torch.rand(3, 2), "made": torch.tensor(7)}
    before = a_trace(state=state)
    before.write(path)
    after = PerturbationFile.read(path)
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


@pytest.mark.parametrize(("nodes", "kind"), [(46_340, torch.int32), (46_341, torch.int64)])
def test_large_graphs_take_eight(path, nodes, kind):
    graph = AttackedGraph(name="large", sha256="0" * 64, nodes=nodes, edges=nodes)
    keys = torch.tensor([nodes * (nodes - 2) + nodes - 1, 1])
    PerturbationFile(FACTS.model_copy(update={"graph": graph}), keys).write(path)
    assert read_tensors(path)[0]["flips"].dtype == kind
    assert PerturbationFile.read(path).first(1).tolist() == [[nodes - 2, nodes - 1]]


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
        (0.6, rf"holds {EDGES // 2} flips, a budget of 0\.5.*Got a budget of {round(0.6 * EDGES)}"),
        (1e-4, "allows no flip of"),
        (1.2, r"ratio in \(0, 1\]\. Got 1\.2"),
    ],
)
def test_budgets_beyond_what_it_holds_are_refused(share, words):
    with pytest.raises(SettingsError, match=words):
        a_trace().flips(share)


def test_a_targeted_file_serves_all_of_its_flips(tmp_path):
    file = run(plan(LABELLED, "nettack", flips=2, targets=(3,)), tmp_path / "n.safetensors")
    with pytest.raises(SettingsError, match=r"holds 2 flips at 1 target.*: leave the budget out"):
        file.flips(0.5)


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
    less, more = (dense(trace.apply(LABELLED, ratio).features) for ratio in (0.1, 0.4))
    assert bool(((more == less) | (more == 0)).all())  # masks nest


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


def test_changed_and_missing_bytes_are_noticed(path):
    a_trace(count=5).write(path)
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            PerturbationFile.read(path)
    for eighth in range(8):
        path.write_bytes(content[: len(content) * eighth // 8])
        with pytest.raises(CheckpointError, match=r"is damaged|Cannot read"):
            PerturbationFile.read(path)


def test_a_newer_file_asks_for_an_upgrade(path, monkeypatch):
    a_trace().write(path)
    with monkeypatch.context() as patch:
        patch.setattr(file_module, "FILE_FORMAT", FILE_FORMAT - 1)
        with pytest.raises(CheckpointError, match=r"perturbation format 1, newer .*Upgrade"):
            PerturbationFile.read(path)
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 0)
    with pytest.raises(CheckpointError, match=r"has format 1, newer .*Upgrade"):
        PerturbationFile.read(path)


def test_other_files_are_refused(path, tmp_path):
    with pytest.raises(FileError, match="There is no perturbation file at"):
        PerturbationFile.read(path)
    with pytest.raises(FileError, match="There is no perturbation file at"):
        PerturbationFile.read(tmp_path)
    write_tensors(path, {"w": torch.ones(2)}, {"kind": "model"})
    with pytest.raises(CheckpointError, match="is not a perturbation but a model"):
        PerturbationFile.read(path)
    path.write_text("source,target\n1,2\n")
    with pytest.raises(CheckpointError, match="damaged or not a safetensors file"):
        PerturbationFile.read(path)


def forged(path, keys=None, **changes):
    """A file with a right digest and wrong content: what someone might send us."""
    facts = {**FACTS.model_dump(mode="json"), **changes}
    tensors = {} if keys is None else {"flips": keys}
    manifest = {"kind": "perturbation", "trace_format": FILE_FORMAT, "facts": facts}
    write_tensors(path, tensors, manifest)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (None, "it holds no flips"),
        (torch.tensor([1.0]), "one list of integers"),
        (torch.tensor([1, 2, 1]), "0 that are none, and 1 twice"),
        (torch.tensor([-1]), "1 that are none"),
        (torch.tensor([60, 61]), "2 that are none"),  # (1, 0) and (1, 1)
        (torch.tensor([60 * 60 + 1]), "1 that are none"),
    ],
)
def test_numbers_that_are_no_pairs_are_refused(path, keys, words):
    forged(path, keys)
    with pytest.raises(CheckpointError, match=words):
        PerturbationFile.read(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "prayer"}, r"\(kind\)"),
        ({"mask_seed": 2**70}, r"\(mask_seed\)"),
        ({"graph": {"name": "g", "sha256": "0", "nodes": 3, "edges": 0}}, r"\(graph\.edges\)"),
        ({"unheard": 1}, r"\(unheard\)"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(path, changes, words):
    forged(path, torch.tensor([1]), **changes)
    with pytest.raises(CheckpointError, match=words):
        PerturbationFile.read(path)


@pytest.mark.parametrize("change", ["flips", "mask", "graph"])
def test_the_digest_knows_all_that_changes_the_perturbed_graph(change):
    trace = a_trace()
    graph = FACTS.graph.model_copy(update={"sha256": "0" * 64})
    others = {
        "flips": PerturbationFile(trace.facts, trace.keys.flip(0)),
        "mask": PerturbationFile(
            FACTS.model_copy(update={"mask_seed": FACTS.mask_seed + 1}), trace.keys
        ),
        "graph": PerturbationFile(FACTS.model_copy(update={"graph": graph}), trace.keys),
    }
    assert others[change].digest(0.2) != trace.digest(0.2)
    assert trace.digest(0.3) != trace.digest(0.2) == a_trace(count=EDGES // 4).digest(0.2)


# Names, budgets and splits


def test_without_a_budget_all_flips_are_meant(path):
    run(plan(LABELLED, "random", flips=30, splits="random"), path)
    file = PerturbationFile.read(path)
    whole = file.perturbation()
    assert whole.budget == file.reached == 30 / EDGES
    assert file.perturbation(0.1, features=False) == Perturbation(
        kind="random", budget=0.1, features=False
    )
    for budget, words in [(0.9, "run a longer attack"), (1e-4, "allows no flip of")]:
        with pytest.raises(SettingsError, match=rf"a.safetensors: .*{words}"):
            file.perturbation(budget)


def test_names_tell_all_that_differs(path):
    run(plan(LABELLED, flips=EDGES // 5, split=3), path)
    file = PerturbationFile.read(path)
    perturbation = file.perturbation(0.1)
    count = round(0.1 * EDGES)
    assert file.name(perturbation) == "metattack-implicit-random-3-0.1"
    assert file.name(file.perturbation(0.1, features=False)).endswith("-0.1-edges")
    title = f"metattack (implicit), random split 3, 10% ({count} flips)"
    assert file.title(perturbation) == title
    content = json.loads(json.dumps(file.to_dict(perturbation)))
    assert (content["flips"], content["mode"], content["split"]) == (count, "poison", 3)
    expected = make_splits("random", LABELLED.labels, LABELLED.num_classes)[3]
    assert torch.equal(file.split_of(LABELLED).test, expected.test)
    graph = FACTS.graph.name
    assert file.facts.file_name == f"{graph}-metattack-implicit-random-3.safetensors"
    assert FACTS.file_name == f"{graph}-random-random-0.safetensors"
    assert content["sha256"] == file.digest(0.1)


def changed(**facts):
    return replace(a_trace(), facts=FACTS.model_copy(update=facts), path=Path("a.safetensors"))


def test_an_attack_that_is_not_complete_needs_a_budget():
    file = changed(complete=False, wanted=EDGES)
    with pytest.raises(
        SettingsError, match=rf"not complete \({EDGES // 2} of {EDGES} flips\)"
    ) as e:
        file.perturbation()
    offered = float(str(e.value).rpartition("--budget, up to ")[2].removesuffix("."))
    assert len(file.flips(file.perturbation(offered).budget)) == EDGES // 2


def test_more_flips_than_edges_need_a_budget():
    file = replace(a_trace(count=EDGES + 1), facts=FACTS.model_copy(update={"complete": True}))
    with pytest.raises(SettingsError, match="more than the"):
        file.perturbation()
    assert len(file.flips(file.perturbation(1.0).budget)) == EDGES


@pytest.mark.parametrize("solver", ["../../etc", "A"])
def test_a_solver_that_would_leave_its_folder(solver):
    with pytest.raises(CheckpointError, match="impossible solver"):
        changed(solver=solver, complete=True).perturbation(0.1)


def test_other_published_splits_are_refused():
    nodes = torch.arange(LABELLED.graph.num_nodes)
    masks = {name: (nodes % 3 == k)[None] for k, name in enumerate(("train", "validation", "test"))}
    published = LabelledGraph(LABELLED.graph, LABELLED.labels, LABELLED.class_names, masks)
    with pytest.raises(GraphError, match=r"a.safetensors: .*published splits .* are not those"):
        changed(splits="published", splits_sha256="0" * 64).check(published)


def test_an_attack_that_is_not_nested_serves_one_budget():
    count = round(0.2 * EDGES)
    facts = FACTS.model_copy(update={"kind": "pr-bcd", "wanted": count, "complete": True})
    file = a_trace(count=count - 2, facts=facts)  # it may find fewer than requested
    assert len(file.flips(0.2)) == count - 2
    assert file.perturbation().budget == count / EDGES
    assert facts.file_name.endswith(f"-{count}-flips.safetensors")
    with pytest.raises(SettingsError, match=rf"serves {count} flips alone\. Got"):
        file.flips(0.1)


@pytest.mark.skipif(not RECORD.exists(), reason="the files of record are not here")
def test_files_of_version_0_1_have_the_digests_of_version_0_1():
    file = PerturbationFile.read(RECORD / "cora-metattack-unrolled-class-balanced-0.safetensors")
    assert file.digest(0.05) == DIGEST


# The file of a running attack: gone on with by the same attack only, never lost by a refusal


def test_a_complete_file_is_left_alone(path):
    run(plan_toy(), path)
    content, changed = path.read_bytes(), path.stat().st_mtime_ns
    planned = plan_toy(flips=12)
    assert len(run(planned, path, resume=True).keys) == 20
    assert planned.attack.states == []
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, changed)
    with pytest.raises(RunError, match="complete with 20 flips, and cannot go on to 21"):
        run(plan_toy(flips=21), path, resume=True)


def test_a_file_that_is_there_is_refused_or_replaced(path):
    path.write_text("mine")
    with pytest.raises(FileError, match=r"exists\. Pass --resume .* --overwrite"):
        run(plan_toy(), path)
    with pytest.raises(CheckpointError, match="Pass --overwrite to begin anew"):
        run(plan_toy(), path, resume=True)
    assert path.read_text() == "mine"
    planned = plan_toy()
    run_attack(planned, PerturbationFile.open(path, planned.facts, overwrite=True))
    assert len(PerturbationFile.read(path).keys) == 20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"split": 1}, "with split 0. Got 1."),
        ({"splits": "class-balanced"}, "with splits 'random'. Got 'class-balanced'."),
    ],
)
def test_another_attack_is_not_gone_on_with(path, changes, words):
    run(plan_toy(), path)
    with pytest.raises(RunError) as refusal:
        run(plan_toy(**changes), path, resume=True)
    assert words in str(refusal.value)


def test_other_settings_kinds_and_graphs_are_not_gone_on_with(path):
    labelled = labelled_graph()
    run(plan(labelled, "random"), path)
    with pytest.raises(RunError, match=r"with kind 'random'\. Got 'metattack'"):
        run(plan(labelled), path, resume=True)
    with pytest.raises(RunError, match=r"with setting keep_last_edges True\. Got False"):
        run(plan(labelled, "random", keep_last_edges=False), path, resume=True)
    with pytest.raises(GraphError, match="belongs to another graph, 'small' with sha256"):
        run(plan(labelled_graph(80), "random"), path, resume=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "cuda"}, "with device 'cuda'. Got 'cpu'. Pass --device cuda"),
        ({"versions": {"torch": "1.0"}}, "with torch version '1.0'"),
    ],
)
def test_the_machine_matters_only_while_there_is_more_to_find(path, change, words):
    planned = plan_toy()
    with pytest.raises(Killed):
        run(planned, path, on_progress=killing(3))
    for complete in (False, True):
        trace = PerturbationFile.read(path)
        facts = trace.facts.model_copy(update={**change, "complete": complete})
        replace(trace, facts=facts).write(path)
        if complete:
            assert len(run(plan_toy(flips=9), path, resume=True).keys) == 9
        else:
            with pytest.raises(RunError) as refusal:
                run(planned, path, resume=True)
            assert words in str(refusal.value)


def test_two_processes_do_not_write_one_file(path):
    planned = plan_toy()
    first, second = (PerturbationFile.open(path, planned.facts) for _ in range(2))
    run_attack(planned, first)
    content = path.read_bytes()
    with pytest.raises(RunError, match="Another process has written"):
        run_attack(planned, second)
    assert path.read_bytes() == content


def test_a_folder_is_made_when_there_is_something_to_put_into_it(tmp_path):
    planned = plan_toy()
    PerturbationFile.open(tmp_path / "new" / "a", planned.facts)
    assert list(tmp_path.iterdir()) == []
    run(planned, tmp_path / "new" / "deep" / "a")
    assert len(PerturbationFile.read(tmp_path / "new" / "deep" / "a").keys) == 20
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="Cannot write"):
        run(planned, tmp_path / "file" / "a")
