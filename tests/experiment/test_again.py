"""Records made again: the same on a CPU, and a difference is told."""

from dataclasses import replace

import pytest
import torch

from aspect.data.archives import write_npz
from aspect.experiment.perturbations import find_files, make_file
from aspect.experiment.plan import lay_out, read_facts
from aspect.experiment.run import Task, forget_graphs, run_cell
from experiment.grids import make_plan
from scripts import load_script

again = load_script("again")


@pytest.fixture
def records(tmp_path, small_graph):
    """Two runs of a method on a graph in a file."""
    path = tmp_path / "small.npz"
    write_npz(path, small_graph)
    forget_graphs()
    plan = make_plan(entries=["aspect"], graphs=[str(path)], seeds=2, set={"epochs": 2, "width": 8})
    cells = lay_out(plan, dict(read_facts(plan, None)), "cpu")
    return [run_cell(Task(cell)).record for cell in cells]


def written(tmp_path, records):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(f"{record.model_dump_json()}\n" for record in records))
    return str(path)


def test_records_of_a_cpu_are_the_same(tmp_path, records, capsys):
    assert again.main([written(tmp_path, records)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[-1] == "On cpu: the same, bit for bit."


def test_a_method_that_was_edited_since_is_run_as_it_is_now(tmp_path, records):
    (record, *_) = records
    spec = record.spec.model_copy(update={"source": "0" * 64})
    edited = record.model_copy(update={"cell": record.cell.model_copy(update={"spec": spec})})
    assert again.main([written(tmp_path, [edited])]) == 0


def test_perturbed_runs_are_made_again_by_the_flips_of_their_files(
    tmp_path, small_graph, capsys, monkeypatch
):
    graph, folder = tmp_path / "small.npz", tmp_path / "flips"
    write_npz(graph, small_graph)
    folder.mkdir()
    forget_graphs()
    plan = make_plan(
        entries=["raw", "propagated"],
        graphs=[str(graph)],
        splits="class-balanced",
        perturbations=[
            {"kind": "random", "budgets": [0.2]},
            {"kind": "dice", "budgets": [0.2]},
            {"kind": "dice", "budgets": [0.1], "mode": "evade"},
        ],
    )
    facts = dict(read_facts(plan, None))
    needed = facts[str(graph)].files
    for need in needed:
        make_file(need, folder)
    files, missing = find_files(needed, folder, tmp_path)
    assert not missing
    cells = lay_out(plan, facts, "cpu", files)
    made = [
        run_cell(
            Task(cell, files.perturbed(cell.graph, cell.spec.perturbation, cell.spec.split_numbers))
        ).record
        for cell in cells
    ]
    monkeypatch.setattr(again, "PERTURBATIONS", folder)
    assert again.main([written(tmp_path, made), "--number", str(len(made))]) == 0
    told = capsys.readouterr().out
    assert told.count("dice 20% poison (cpu)") == 4
    assert told.count("dice 10% evade (cpu)") == 2
    assert told.endswith("On cpu: the same, bit for bit.\n")
    monkeypatch.setattr(again, "PERTURBATIONS", tmp_path)
    by_file = [record for record in made if record.spec.perturbation.kind == "dice"]
    assert again.main([written(tmp_path, by_file)]) == 2
    assert "lacks flips of" in capsys.readouterr().err


def test_a_shorter_file_of_another_solver_is_not_asked(tmp_path, small_graph, monkeypatch):
    graph = tmp_path / "small.npz"
    write_npz(graph, small_graph)
    forget_graphs()
    cells = {}
    for solver, budget in (("implicit", 0.2), ("unrolled", 0.1)):
        asked = {"kind": "metattack", "solver": solver, "budgets": [budget]}
        plan = make_plan(
            entries=["raw"], graphs=[str(graph)], splits="class-balanced", perturbations=[asked]
        )
        facts = dict(read_facts(plan, None))
        needed = facts[str(graph)].files
        for need in needed:
            make_file(need, tmp_path)
        files, _ = find_files(needed, tmp_path, tmp_path)
        cells[solver] = lay_out(plan, facts, "cpu", files)[0]
    monkeypatch.setattr(again, "PERTURBATIONS", tmp_path)
    for solver, cell in cells.items():
        found = again.perturbed(cell)
        assert tuple(each.sha256 for each in found) == cell.spec.perturbation_sha256
        assert {each.file.facts.solver for each in found} == {solver}


def test_a_changed_score_is_told(tmp_path, records, capsys):
    first, *others = records[0].scores
    other = first.model_copy(update={"strict": first.strict + 0.25})
    changed = records[0].model_copy(update={"scores": (other, *others)})
    assert again.main([written(tmp_path, [changed])]) == 1
    assert "largest difference of a score 0.25 points" in capsys.readouterr().out


def test_records_of_a_gpu_are_not_made_again_on_a_cpu(tmp_path, records, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spec = records[0].spec.model_copy(update={"device": "cuda"})
    cell = records[0].cell.model_copy(update={"spec": spec})
    other = records[0].model_copy(update={"cell": cell})
    assert again.main([written(tmp_path, [other])]) == 1
    assert "made on a GPU, and there is none here" in capsys.readouterr().out


def test_a_run_that_fails_is_told(tmp_path, records, small_graph, capsys):
    path = tmp_path / "small.npz"
    write_npz(path, replace(small_graph, labels=1 - small_graph.labels), overwrite=True)
    forget_graphs()
    assert again.main([written(tmp_path, records[:1])]) == 1
    assert "changed since the command began" in capsys.readouterr().out


def test_the_draw_has_a_seed_and_leaves_failed_runs_out(records):
    failed = records[0].model_copy(update={"status": "failed"})
    drawn = [again.drawn([*records, failed], 2, seed) for seed in (0, 0)]
    assert drawn[0] == drawn[1]
    assert failed not in drawn[0]


def test_without_records_a_sentence(tmp_path, capsys):
    assert again.main([str(tmp_path / "none.jsonl")]) == 2
    assert "There are no records" in capsys.readouterr().err
    assert again.main([written(tmp_path, [])]) == 2
    assert "Got none." in capsys.readouterr().err
