"""What a report can be made from, and what is said of all else."""

import json
import shutil

import pytest
import torch

from aspect import linear_probe
from aspect.attacks.file import PerturbationFile
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.data.source import Reading
from aspect.data.splits import make_splits
from aspect.errors import AspectError, RunError
from aspect.experiment.plan import Plan
from aspect.experiment.store import BenchFolder
from aspect.experiment.trained import open_run, train_run
from aspect.report.sources import find_sources, read_sources
from aspect.settings import Experiment, PerturbedBy
from report.benchmark_records import make_records
from report.node_details import make_details

TINY = {"epochs": 3, "width": 4, "gate_width": 4}


@pytest.fixture
def records():
    return make_records(("aspect", "raw"), ("cora",))


@pytest.fixture
def record_file(records, tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(f"{record.model_dump_json()}\n" for record in records), "utf-8")
    return path


@pytest.fixture
def bench(records, tmp_path):
    """A bench's folder as `aspect bench` leaves it, with details of its first cell."""
    plan = Plan(name="plan", title="A plan", entries=("aspect", "raw"), graphs=("cora",))
    with BenchFolder.open(tmp_path / "bench", plan) as folder:
        folder.expect(plan, [record.cell for record in records])
        for number, record in enumerate(records):
            folder.write(record, make_details() if number == 0 else None)
        folder.conclude()
    return tmp_path / "bench"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A complete run on a tiny graph in tables, whose nodes have names and classes."""
    folder = tmp_path_factory.mktemp("source")
    pairs = [(k, (k + 1) % 24) for k in range(24)] + [(k, (k + 5) % 24) for k in range(24)]
    edges = "".join(f"n{a},n{b}\n" for a, b in pairs)
    nodes = "".join(f"n{k},{k % 5},{k % 7},{'ab'[k % 2]}\n" for k in range(24))
    (folder / "edges.csv").write_text(f"source,target\n{edges}")
    (folder / "nodes.csv").write_text(f"id,x,y,label\n{nodes}")
    return folder


@pytest.fixture(scope="module")
def unlabelled(run, tmp_path_factory):
    """The same edges without classes: nothing is probed, which takes the longest."""
    folder = tmp_path_factory.mktemp("unlabelled")
    shutil.copy(run / "edges.csv", folder / "edges.csv")
    nodes = "".join(f"n{k},{k % 5}\n" for k in range(24))
    (folder / "nodes.csv").write_text(f"id,x\n{nodes}")
    return folder


def train(run, out, seed=0, label="label", perturbation=None, **settings):
    reading = Reading(nodes=str(run / "nodes.csv"), label=label)
    experiment = Experiment(
        method="aspect",
        graph=str(run / "edges.csv"),
        reading=reading,
        perturbation=perturbation,
        seed=seed,
        settings={**TINY, **settings},
    )
    train_run(experiment, out)
    return out


@pytest.fixture(scope="module")
def first(run, tmp_path_factory):
    """Trained once; tests that change the folder take a copy."""
    return train(run, tmp_path_factory.mktemp("runs") / "seed-0")


@pytest.fixture
def copy(first, tmp_path):
    return shutil.copytree(first, tmp_path / "copy")


def read(*paths):
    return read_sources(find_sources(paths), device="cpu")


def test_records_are_read_from_a_file_and_from_a_bench(records, record_file, bench):
    found = read(record_file)
    assert len(found.results.runs) == len(records)
    assert (found.details, found.title) == ((), "")
    found = read(bench)
    assert len(found.results.runs) == len(records)
    assert [details.graph for details in found.details] == ["ring"]
    assert found.title == "A plan"
    assert read(bench, record_file).title == ""


def test_a_page_goes_into_a_bench_and_beside_all_else_and_names_its_commands(record_file, bench):
    file, folder = find_sources([record_file, bench])
    assert file.page == record_file.parent / "report.html"
    assert folder.page == bench / "report.html"
    assert read(bench, record_file, record_file).commands == (  # what comes twice counts once
        f"aspect bench {bench}/plan.yaml --out {bench}",
        "aspect bench plan",
        f"aspect report {bench} {record_file}",
    )


def test_commands_of_a_file_are_those_of_its_own_plans(records, bench, tmp_path):
    other = [
        r.model_copy(update={"cell": r.cell.model_copy(update={"plan": "two"})}) for r in records
    ]
    file = tmp_path / "two.jsonl"
    file.write_text("".join(f"{record.model_dump_json()}\n" for record in other))
    assert read(bench, file).commands == (
        f"aspect bench {bench}/plan.yaml --out {bench}",
        "aspect bench two",
        f"aspect report {bench} {file}",
    )


def test_a_run_becomes_a_record_with_the_scores_of_evaluate(first):
    from aspect.experiment.evaluate import evaluate_runs

    told = []
    found = read_sources(find_sources([first]), device="cpu", on_run=told.append)
    results = found.results
    assert told == [first]
    assert list(results.variants) == ["aspect"]
    # Steps of one and of five both join an even node to an odd one: of another class.
    sizes = {"nodes": 24, "edges": 48, "features": 2, "classes": 2, "homophily": 0.0}
    assert results.graph_facts.loc["edges"].to_dict() == sizes
    mean = results.select(metric="strict")["value"].mean()
    rows = evaluate_runs([first], device="cpu").rows
    assert mean == pytest.approx(rows[0]["strict"]["mean"], abs=1e-9)
    (details,) = found.details
    assert details.ids[3] == "n3"
    assert len(details.curves["loss"]) == TINY["epochs"]


def test_a_poisoned_run_is_probed_on_the_split_of_its_file_alone(run, first, tmp_path):
    labelled = open_run(first).read_graph()
    request = AttackRequest(kind="dice", budget=0.2)
    (planned,) = plan_attacks(labelled, "edges", request, [3], torch.device("cpu"))
    trace = run_attack(planned, PerturbationFile.open(tmp_path / "flips", planned.facts))
    perturbed_by = PerturbedBy(file=str(tmp_path / "flips"), budget=0.1)
    poisoned = train(run, tmp_path / "poisoned", perturbation=perturbed_by)
    found = read(first, poisoned)
    results = found.results
    assert list(results.variants) == ["aspect"]
    assert list(results.perturbations) == ["dice-poison-10"]
    graph = trace.apply(labelled, 0.1)
    embeddings = open_run(poisoned).load_model("cpu").embed(graph)
    splits = make_splits("class-balanced", labelled.labels, 2)
    (expected,) = linear_probe(embeddings, labelled.labels, [splits[3]]).splits
    scores = results.select(perturbation="dice-poison-10", metric="strict")
    assert scores[["split", "value"]].to_numpy().tolist() == [[3, expected.strict]]
    assert [each.title for each in found.details] == ["aspect", "aspect, dice 10%"]


def test_runs_that_differ_in_the_seed_are_one_entry_and_others_are_told_apart(unlabelled, tmp_path):
    paths = [
        train(unlabelled, tmp_path / f"seed-{seed}", seed=seed, label=None) for seed in range(2)
    ]
    found = read(*paths)
    assert list(found.results.variants) == ["aspect"]
    assert len(found.results.scores) == 0
    assert "no labels" in found.results.notices[0]
    assert found.details[0].labels == ()
    graphs = [model.graph for model in found.details]
    assert [name.partition(" (")[2] for name in graphs] == ["seed 0)", "seed 1)"]
    other = train(unlabelled, tmp_path / "wide", label=None, width=6)
    variants = list(read(*paths, other).results.variants)
    assert variants == ["aspect (seed-0)", "aspect (seed-1)", "aspect (wide)"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "There is no such file or folder"),
        ("empty", "It is none of them"),
        ("text.txt", "It is none of them"),
        ("with\0nul", "There is no such file or folder"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(RunError, match=words):
        find_sources([tmp_path / name])
    with pytest.raises(RunError, match="one or more"):
        find_sources([])


def test_an_unfinished_run_is_named_with_the_way_to_finish_it(copy):
    (copy / "record.json").unlink()
    with pytest.raises(RunError, match=r"not complete.*--resume"):
        find_sources([copy])


def test_an_empty_file_and_a_damaged_one_are_one_sentence(record_file):
    empty = record_file.with_name("empty.jsonl")
    empty.write_text("")
    with pytest.raises(RunError, match="no records yet"):
        read(empty)
    lines = record_file.read_text("utf-8").splitlines()
    record_file.write_text(f"{lines[0]}\n{lines[1][:100]}\n", "utf-8")
    with pytest.raises(AspectError, match="line 2"):
        read(record_file)


def test_damaged_curves_are_named(copy):
    (copy / "metrics.jsonl").write_text("{")
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged"):
        read(copy)
    (copy / "metrics.jsonl").write_text(
        "".join(json.dumps({"epoch": 1, "loss": "odd"}) + "\n" for _ in range(2))
    )
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged"):
        read(copy)


def test_values_that_some_epochs_lack_keep_their_epochs(copy):
    told = [{"loss": 3.0}, {"loss": 2.0, "late": 5.0}, {"loss": None, "other": 1.0}]
    lines = [json.dumps({"epoch": epoch, **values}) for epoch, values in enumerate(told, start=1)]
    (copy / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (copy / "manifest.json").unlink(missing_ok=True)  # it would name the file as changed
    assert read(copy).details[0].curves == {
        "loss": (3.0, 2.0, None),
        "late": (None, 5.0, None),
        "other": (None, None, 1.0),
    }


def test_what_two_benches_hold_counts_once(records, bench, tmp_path):
    """A model that both show is shown as the one saw it that attacked it."""
    plan = Plan(name="plan", entries=("aspect", "raw"), graphs=("cora",))
    plain = make_details(attacked=())
    with BenchFolder.open(tmp_path / "other", plan) as folder:
        folder.expect(plan, [record.cell for record in records])
        for record, details in zip(records, [plain, make_details(seed=1)], strict=False):
            folder.write(record, details)
        for record in records[2:]:
            folder.write(record, None)
        folder.conclude()
    for paths in ((bench, tmp_path / "other"), (tmp_path / "other", bench)):
        found = read(*paths)
        assert len(found.results.runs) == len(records)
        assert sorted(each.seed for each in found.details) == [0, 1]
        assert all(each.attacked for each in found.details)
        graphs = {each.seed: each.graph for each in found.details}
        assert graphs == {0: "ring (seed 0)", 1: "ring (seed 1)"}
