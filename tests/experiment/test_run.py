"""One run: the same numbers as the steps by hand, and a record whatever happens."""

import importlib.metadata
import logging
import warnings
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from aspect import Embedder, linear_probe, mixed_graph
from aspect.attacks.file import PerturbationFile
from aspect.attacks.perturbation import Perturbation
from aspect.data.archives import read_npz, write_npz
from aspect.data.splits import make_splits
from aspect.errors import TrainingError
from aspect.evaluation.baselines import twin_probe
from aspect.evaluation.linear_probe import evasion_probe, probe_named
from aspect.evaluation.paper_probe import PaperProbe
from aspect.evaluation.pruning import probe_pruned
from aspect.experiment.plan import lay_out, read_facts
from aspect.experiment.run import (
    PerturbedGraph,
    Task,
    Training,
    faults_of,
    forget_graphs,
    gate_summary,
    run,
    run_cell,
    run_cells,
)
from aspect.methods.base import Method, Output
from experiment.attacked import Prepared, attacked_plan
from experiment.grids import make_plan

MASKS = ("train", "validation", "test")
TINY = {"epochs": 3, "width": 8, "gate_width": 4, "order": 2}


@pytest.fixture
def path(tmp_path, small_graph):
    path = tmp_path / "small.npz"
    write_npz(path, small_graph)
    return path


def cells_on(path, **values):
    plan = make_plan(
        **{"entries": ["aspect"], "graphs": [str(path)], "set": TINY, "splits": "random", **values}
    )
    return lay_out(plan, dict(read_facts(plan, None)), "cpu")


def by_hand(path, cell, graph=None):
    """The cell's model, graph and splits, made with nothing but the public pieces."""
    labelled = read_npz(path)
    splits = make_splits("random", labelled.labels, 2)
    chosen = [splits[number] for number in cell.spec.split_numbers]
    model = Embedder("aspect", seed=cell.spec.seed, device="cpu", **cell.spec.settings)
    return model.fit(graph or labelled.graph), labelled, chosen


def scores(found):
    return [(each.strict, each.validation, each.choice, each.step) for each in found]


def test_a_clean_cell_is_training_and_probing(path):
    cell = cells_on(path, seeds=2)[1]
    record = run_cell(Task(cell)).record
    model, labelled, splits = by_hand(path, cell)
    expected = linear_probe(model.embed(labelled.graph), labelled.labels, splits)
    assert record.status == "done", record.error
    assert scores(record.scores) == scores(expected.splits)
    assert [score.split for score in record.scores] == [0, 1]
    for score, split in zip(record.scores, splits, strict=True):
        frequent = labelled.labels[split.validation].bincount().argmax()
        share = 100 * (labelled.labels[split.test] == frequent).double().mean()
        assert score.majority == pytest.approx(float(share))
    assert record.gate["mean"] == pytest.approx(float(model.policy(labelled.graph).mean()))
    assert record.health == model.health(labelled.graph).to_dict()
    twins = twin_probe(labelled.graph, labelled.labels, splits)
    assert [score.twins for score in record.scores] == [each.strict for each in twins.splits]
    assert record.epochs == 3
    assert record.loss == model.result.values
    assert record.dim == model.embed(labelled.graph).shape[1]
    assert record.parameters == model.method.num_parameters > 0


def test_a_method_that_was_edited_since_the_bench_began_is_not_run(path):
    """Its scores would stand under the key of the source as it was."""
    cell = cells_on(path)[0]
    spec = cell.spec.model_copy(update={"source": "0" * 64})
    record = run_cell(Task(cell.model_copy(update={"spec": spec}))).record
    assert "The source of aspect changed since the command began" in record.error


def test_twins_are_those_of_the_published_splits(tmp_path, small_graph):
    """Two files of one graph may differ in their splits alone."""
    found = []
    nodes = small_graph.graph.num_nodes
    for seed in (0, 1):
        order = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
        masks = {name: torch.zeros(1, nodes, dtype=torch.bool) for name in MASKS}
        for name, part in zip(MASKS, order.chunk(3), strict=True):
            masks[name][0, part] = True
        labelled = replace(small_graph, masks=masks)
        write_npz(tmp_path / f"{seed}.npz", labelled)
        (cell,) = cells_on(tmp_path / f"{seed}.npz", entries=["raw"], splits="published", set={})
        (score,) = run_cell(Task(cell)).record.scores
        splits = make_splits("published", labelled.labels, 2, masks=masks)
        twins = twin_probe(labelled.graph, labelled.labels, splits)
        assert score.twins == twins.splits[0].strict
        found.append(score.twins)
    assert found[0] != found[1]


def test_the_plan_names_the_probe(path):
    cells = [cells_on(path, probe=probe)[0] for probe in ("neutral", "paper")]
    assert [cell.spec.probe for cell in cells] == ["neutral", "paper"]
    model, labelled, splits = by_hand(path, cells[0])
    for cell in cells:
        expected = linear_probe(
            model.embed(labelled.graph, normalise="none"),
            labelled.labels,
            splits,
            probe=probe_named(cell.spec.probe),
        )
        found = run_cell(Task(cell)).record.scores
        assert scores(found) == scores(expected.splits)
        assert [score.at_path_end for score in found] == [
            score.at_path_end for score in expected.splits
        ]
        assert [score.optimistic is None for score in found] == 2 * [cell is cells[0]]
    # A spec of version 0.1 names no probe: it is the paper's.
    spec = cells[1].spec.model_copy(update={"probe": None})
    assert run_cell(Task(cells[1].model_copy(update={"spec": spec}))).record.scores == found


def test_a_collapsed_embedding_is_in_the_record_and_warned_of(path, monkeypatch):
    def collapsed(method, graph):
        embedding = method.embed(graph)
        return Output(embedding, uncentred=1 + 1e-6 * embedding)

    monkeypatch.setattr(Method, "output", collapsed)
    record = run_cell(Task(cells_on(path, entries=["raw"])[0])).record
    assert record.health["mean_cosine"] > 0.99
    assert any("Representation collapse" in warning for warning in record.warnings)


def test_a_worker_asks_for_the_twins_of_a_graph_once(path, monkeypatch):
    forget_graphs()
    asked = Mock(side_effect=twin_probe)
    monkeypatch.setattr("aspect.experiment.run.twin_probe", asked)
    first, second = cells_on(path, entries=["raw", {"name": "two", "method": "aspect"}])
    records = [run_cell(Task(each)).record for each in (first, second)]
    assert asked.call_count == 1
    assert records[0].scores[0].twins == records[1].scores[0].twins is not None
    monkeypatch.setattr("aspect.experiment.run.MOST_TWIN_NODES", 29)
    forget_graphs()
    assert run_cell(Task(first)).record.scores[0].twins is None
    forget_graphs()


def test_edges_are_pruned_at_the_ratio_that_validation_prefers(path):
    shares = [0.0, 0.1, 0.3]
    plain, pruning = cells_on(
        path, entries=["aspect", {"name": "wary", "method": "aspect", "prune": shares}]
    )
    assert plain.key != pruning.key
    record = run_cell(Task(pruning)).record
    model, labelled, splits = by_hand(path, pruning)
    found = probe_pruned(model, labelled.graph, labelled, splits, shares)
    assert record.status == "done", record.error
    assert scores(record.scores) == scores(found.result.splits)
    told = [(score.prune, score.pruned) for score in record.scores]
    assert told == [(split.asked, split.reached) for split in found.splits]
    assert record.prune_score == found.score
    untouched = run_cell(Task(plain)).record
    assert {(score.prune, score.pruned) for score in untouched.scores} == {(None, None)}
    assert untouched.prune_score is None


def test_a_record_tells_what_a_reader_asks(path, small_graph):
    record = run_cell(Task(cells_on(path)[0])).record
    graph = small_graph.graph
    assert (record.graph.name, record.graph.nodes) == ("small", graph.num_nodes)
    assert (record.graph.edges, record.graph.classes) == (graph.num_edges, 2)
    source, target = small_graph.labels[graph.edge_index]
    assert record.graph.homophily == pytest.approx(float((source == target).float().mean()))
    assert set(record.seconds) == {"train", "embed", "probe"}
    assert record.peak_memory_bytes > 10 * 2**20
    assert record.device.startswith("cpu")
    assert record.versions["torch"] == importlib.metadata.version("torch")


def test_a_poisoned_cell_trains_and_probes_on_its_splits_graph(path):
    _, cell = cells_on(path, perturbations=[{"kind": "random", "budgets": [0.2]}])
    assert cell.spec.split_numbers == (1,)
    record = run_cell(Task(cell, (PerturbedGraph(cell.spec.perturbation, 1),))).record
    poisoned = Perturbation(kind="random", budget=0.2).apply(read_npz(path), 1)
    model, labelled, splits = by_hand(path, cell, poisoned)
    expected = linear_probe(model.embed(poisoned), labelled.labels, splits)
    assert scores(record.scores) == scores(expected.splits)
    assert record.scores[0].split == 1
    assert record.graph.edges == labelled.graph.num_edges, "the facts are of the clean graph"


ATTACKS = [
    {"kind": "dice", "budgets": [0.2]},
    {"kind": "dice", "mode": "evade", "features": False, "budgets": [0.1]},
]


@pytest.fixture
def attacked(path, tmp_path):
    """Tasks of a poisoned graph for each split, and of one evaded for both; and their files."""
    plan = attacked_plan(path, *ATTACKS)
    prepared = Prepared(plan, tmp_path / "out")
    prepared.attack()
    tasks = [Task(cell, prepared.perturbed(cell)) for cell in prepared.cells]
    return tasks, list(prepared.files.files.values())


def test_a_cell_poisoned_by_a_file_trains_and_probes_on_its_splits_graph(path, attacked):
    (_, task, _), (_, trace) = attacked
    record = run_cell(task).record
    assert record.status == "done", record.error
    poisoned = trace.apply(read_npz(path), 0.2)
    model, labelled, splits = by_hand(path, task.cell, poisoned)
    expected = linear_probe(model.embed(poisoned), labelled.labels, splits)
    assert scores(record.scores) == scores(expected.splits)
    assert record.scores[0].split == trace.facts.split == 1
    assert record.cell.spec.perturbation_sha256 == (trace.digest(0.2),)
    assert record.attack.flips == round(0.2 * labelled.graph.num_edges)
    assert record.attack.settings == {"keep_last_edges": True}


def test_a_cell_evaded_by_files_tests_each_split_on_its_own_graph(path, attacked):
    (_, _, task), traces = attacked
    record = run_cell(task).record
    assert record.status == "done", record.error
    model, labelled, splits = by_hand(path, task.cell)
    others = [model.embed(each.apply(labelled, 0.1, features=False)) for each in traces]
    clean = model.embed(labelled.graph)
    expected = evasion_probe(clean, others, labelled.labels, splits, num_classes=2)
    assert scores(record.scores) == scores(expected.splits)


def test_a_file_that_changed_fails_the_cell_before_it_is_trained(attacked, monkeypatch):
    (task, _, evaded), (trace, _) = attacked
    facts = trace.facts.model_copy(update={"mask_seed": 1})
    PerturbationFile(facts, trace.keys).write(task.perturbed[0].path)
    monkeypatch.setattr(Embedder, "fit", None)  # it does not come to that
    for each in (task, evaded):
        record = run_cell(each).record
        assert record.status == "failed"
        assert "changed since the command began" in record.error
    task.perturbed[0].path.unlink()
    assert "There is no perturbation file" in run_cell(task).record.error


def test_details_show_the_clean_graph_and_the_perturbed_ones(path):
    (cell,) = cells_on(path)
    shown = (PerturbedGraph(Perturbation(kind="random", budget=0.2), 0),)
    outcome = run_cell(Task(cell, has_details=True, shown=shown))
    assert outcome.record.status == "done", outcome.trace
    details = outcome.details
    assert details.title == "aspect"
    assert details.graph == "small"
    assert len(details.curves["loss"]) == 3
    assert [each.label for each in details.attacked] == ["random 20%"]
    model, labelled, _ = by_hand(path, cell)
    gate = model.policy(shown[0].apply(labelled))
    torch.testing.assert_close(torch.tensor(details.attacked[0].gate), gate, rtol=1e-3, atol=1e-3)
    assert run_cell(Task(cell)).details is None


def test_missing_classes_are_called_by_name(tmp_path, small_graph):
    labels = small_graph.labels.clone()
    labels[0] = 2
    rare = type(small_graph)(small_graph.graph, labels, ("0", "1", "2"))
    path = tmp_path / "rare.npz"
    write_npz(path, rare)
    record = run_cell(Task(cells_on(path, splits="class-balanced")[0])).record
    assert any("2 of 2 test sets lack a class (of 3): 2." in text for text in record.notices)


def test_what_the_library_warns_of_is_in_the_record(path, monkeypatch):
    (cell,) = cells_on(path)
    fit = Embedder.fit

    def warn(model, *arguments, **options):
        for _ in range(2):
            logging.getLogger("aspect.training").warning("Only %d left.", 3)
        return fit(model, *arguments, **options)

    monkeypatch.setattr(Embedder, "fit", warn)
    assert run_cell(Task(cell)).record.warnings[0] == "Only 3 left."
    assert "Only 3 left." not in run_cell(Task(cell)).record.warnings[1:]


def test_a_training_that_diverges_is_a_record(path):
    (cell,) = cells_on(path, set={**TINY, "learning_rate": 1e9, "layer_order": "filter-first"})
    outcome = run_cell(Task(cell))
    assert outcome.record.status == "failed"
    assert "not" in outcome.record.error
    assert "finite" in outcome.record.error
    assert "TrainingError" in outcome.trace
    assert outcome.record.scores == ()


def test_splits_that_changed_are_refused(path, small_graph):
    parts = torch.arange(30).remainder(3)
    names = ("train", "validation", "test")

    def published(order):
        masks = {name: parts.eq(place)[None] for name, place in zip(names, order, strict=True)}
        write_npz(path, replace(small_graph, masks=masks), overwrite=True)
        forget_graphs()

    published((0, 1, 2))
    (cell,) = cells_on(path, splits="published", num_splits=1)
    assert run_cell(Task(cell)).record.status == "done"
    published((0, 2, 1))
    record = run_cell(Task(cell)).record
    assert record.status == "failed"
    assert "splits" in record.error
    assert "changed since the command began" in record.error


def test_a_graph_that_changed_is_refused(path, small_graph):
    (cell,) = cells_on(path)
    forget_graphs()
    changed = type(small_graph)(small_graph.graph, 1 - small_graph.labels, ("0", "1"))
    write_npz(path, changed, overwrite=True)
    record = run_cell(Task(cell)).record
    assert record.status == "failed"
    assert "changed since the command began" in record.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "Out of memory."),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "Out of memory."),
        (ZeroDivisionError("none"), "ZeroDivisionError: none."),
    ],
)
def test_whatever_is_raised_becomes_a_sentence(path, monkeypatch, error, words):
    (cell,) = cells_on(path)

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(Embedder, "fit", fail)
    outcome = run_cell(Task(cell))
    assert outcome.record.error.startswith(words)
    assert "in fail" in outcome.trace


def test_a_worker_reads_a_graph_once(path):
    forget_graphs()
    first, second = cells_on(path, entries=["raw", {"name": "two", "method": "aspect"}])
    run_cell(Task(first))
    path.unlink()
    assert run_cell(Task(second)).record.status == "done"


def test_homophily_counts_edges_between_labelled_nodes(path, small_graph):
    (cell,) = cells_on(path)
    known = small_graph.labels.clone()
    known[:10] = -1
    ends = known[small_graph.graph.edge_index]
    counted = ends[:, (ends != -1).all(dim=0)]
    expected = float((counted[0] == counted[1]).float().mean())
    for labels, homophily in ((known, expected), (torch.full((30,), -1), None)):
        task = Task(cell, is_probed=False)
        outcome = run(task, labelled=replace(small_graph, labels=labels))
        assert outcome.record.graph.homophily == pytest.approx(homophily)
        assert outcome.record.scores == ()


def test_a_model_that_is_trained_already_is_probed_as_it_is(path, monkeypatch):
    (cell,) = cells_on(path)
    training = Training()
    first = run(Task(cell), training=training)
    monkeypatch.setattr(Embedder, "fit", None)  # it does not come to that
    second = run(Task(cell), training=Training(training.model))
    assert second.record.scores == first.record.scores
    assert second.record.parameters == first.record.parameters > 0


def test_one_training_serves_several_evaluations_as_trainings_of_their_own_would(path, monkeypatch):
    also = [{"splits": "class-balanced", "probe": "paper"}]
    first, second = cells_on(path, entries=["aspect"], also=also)
    alone = [run_cell(Task(cell)).record for cell in (first, second)]
    fits, fit = [], Embedder.fit
    monkeypatch.setattr(Embedder, "fit", lambda *a, **k: fits.append(1) or fit(*a, **k))
    together = [outcome.record for outcome in run_cells([Task(first), Task(second)])]
    assert len(fits) == 1
    assert [record.scores for record in together] == [record.scores for record in alone]
    assert ["train" in record.seconds for record in together] == [True, False]
    assert together[1].spec.probe == "paper"
    assert together[1].epochs == together[0].epochs > 0


def test_an_evaluation_that_fails_costs_no_other(path, monkeypatch):
    also = [{"splits": "class-balanced", "probe": "paper"}]
    first, second = cells_on(path, entries=["aspect"], also=also)

    def fail(*_, **__):
        raise ValueError("No such probe.")

    monkeypatch.setattr(PaperProbe, "inputs", fail)
    fits, fit = [], Embedder.fit
    monkeypatch.setattr(Embedder, "fit", lambda *a, **k: fits.append(1) or fit(*a, **k))
    for cells, states in (
        ((first, second), ["done", "failed"]),
        ((second, first), ["failed", "done"]),
    ):
        outcomes = run_cells([Task(cell) for cell in cells])
        assert [outcome.record.status for outcome in outcomes] == states
        assert len(fits) == 1
        fits.clear()


def test_a_training_that_fails_fails_once(path, monkeypatch):
    also = [{"splits": "class-balanced", "probe": "paper"}]
    cells = cells_on(path, entries=["aspect"], also=also)
    fits = []

    def fail(*_, **__):
        fits.append(1)
        raise TrainingError("The loss is not a finite number.")

    monkeypatch.setattr(Embedder, "fit", fail)
    outcomes = run_cells([Task(cell) for cell in cells])
    assert [outcome.record.error for outcome in outcomes] == [
        "The loss is not a finite number.",
        "The loss is not a finite number.",
    ]
    assert all("in fail" in outcome.trace for outcome in outcomes)
    assert len(fits) == 1


def test_momentum_encoders_are_no_trained_numbers(path):
    (cell,) = cells_on(path, entries=["bgrl"], set={"epochs": 1, "width": 8})
    training = Training()
    outcome = run(Task(cell), training=training)
    method = training.model.method
    everything = sum(one.numel() for one in method.parameters())
    assert outcome.record.parameters < everything
    loaded = run(Task(cell), training=Training(training.model))
    assert loaded.record.parameters == outcome.record.parameters


def test_a_training_that_came_to_nothing_is_warned_of():
    graph = mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0).graph
    for rate, is_wild in ((1e3, True), (1e-3, False)):
        model = Embedder("dgi", device="cpu", epochs=9, patience=4, width=8, learning_rate=rate)
        faults = faults_of(model, model.fit(graph).health(graph))
        assert any("those from before the training" in fault for fault in faults) == is_wild


def test_the_gate_of_a_single_node_has_no_deviation():
    with warnings.catch_warnings(action="error"):
        assert gate_summary(torch.tensor([0.25])) == {"mean": 0.25, "std": 0.0}
