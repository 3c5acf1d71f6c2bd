"""A method, an attack and a data set of a user's own module, in every command."""

import json
import sys

import pytest

from aspect.experiment.spec import method_source
from foreign import registries, write_module  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("registries")


@pytest.fixture
def module(cli, monkeypatch, request):
    """A module in the working directory, with a name of its own for every test."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    name = "cli_" + "".join(filter(str.isalnum, request.node.name))[:60]
    yield write_module(cli.cwd, name)
    sys.modules.pop(name, None)


def test_train_resume_embed_and_evaluate(cli, module):
    record = cli("train", "mine-graph", "--import", module, "--method", "mine", "--json").json
    assert record["run"] == "runs/mine-graph-mine-0"
    assert record["method"] == f"{module}:Mine"
    assert len(record["source"]) == 64
    run = cli.cwd / record["run"]
    again = cli("train", "--out", run, "--resume", "--json").json
    assert again["seconds"] == record["seconds"], "it was complete"
    assert cli("embed", run, "--out", "z.npy", "--json").json["nodes"] == 30
    table = cli("evaluate", run, "--json").json
    assert table["rows"][0]["name"] == f"{module}:Mine"
    with (cli.cwd / f"{module}.py").open("a") as file:
        file.write("# edited\n")
    method_source.cache_clear()
    done = cli("evaluate", run, "--json")
    assert done.code == 0
    assert "changed since" in done.err


def test_a_run_does_not_go_on_with_other_code(cli, module):
    words = ["train", "mixed", "--method", f"{module}:Mine", "--out", "run"]
    assert cli(*words).code == 0
    (cli.cwd / "run/record.json").unlink()  # as if it had been stopped
    (cli.cwd / "run/manifest.json").unlink()
    with (cli.cwd / f"{module}.py").open("a") as file:
        file.write("# edited\n")
    method_source.cache_clear()
    cli("train", "--out", "run", "--resume").refused("changed since the run in run began")
    assert cli(*words, "--overwrite").code == 0


def test_a_reference_in_options_and_in_a_settings_file(cli, module):
    done = cli("train", f"{module}:small", "--method", f"{module}:Mine", "--set", "epochs=1")
    assert done.code == 0
    (cli.cwd / "own.yaml").write_text(f"method: {module}:Mine\nsettings: {{epochs: 2}}\n")
    record = cli("train", "mixed", "--config", "own.yaml", "--json").json
    assert (record["method"], record["epochs"]) == (f"{module}:Mine", 2)


def test_bench_in_workers_with_attack_and_data_set(cli, module):
    plan = (
        "entries: [mine, raw]\ngraphs: [mine-graph]\nnum_splits: 1\n"
        "perturbations: [none, {kind: mine-hubs}]\n"
    )
    (cli.cwd / "plan.yaml").write_text(plan)
    done = cli("bench", "plan.yaml", "--import", module, "--workers", 1, "--json").json
    assert (done["done"], done["failed"]) == (4, 0)
    lines = (cli.cwd / "runs/plan/records.jsonl").read_text().splitlines()
    specs = [json.loads(line)["cell"]["work"] for line in lines]
    assert {work["method"] for work in specs} == {f"{module}:Mine", "raw"}
    assert all(("source" in work) == (work["method"] != "raw") for work in specs)
    # The folder knows all that the plan named.
    assert cli("report", "runs/plan", "--json").json["records"] == 4
    assert cli("bench", "runs/plan/plan.yaml", "--out", "runs/plan", "--json").json["kept"] == 4
    only = cli(
        "bench", "plan.yaml", "--import", module, "--graph", "mine-graph", "--list", "--json"
    )
    assert only.json["done"] == 4


def test_tune(cli, module):
    words = ["--trials", 2, "--workers", 1, "--max-epochs", 2, "--set", "width=4"]
    words = ["tune", "mine-graph", "--method", "mine", "--import", module, *words, "--json"]
    (search,) = cli(*words).json["searches"]
    assert search["complete"] + search["pruned"] + search["unhealthy"] == 2
    assert search["folder"] == "runs/tune/mine-graph-mine"
    assert cli(*words).json["searches"][0]["done_before"] == 2
    with (cli.cwd / f"{module}.py").open("a") as file:
        file.write("# edited\n")
    method_source.cache_clear()
    cli(*words[:-1]).refused("changed since the search in runs/tune/mine-graph-mine began")


def test_methods_and_datasets_list_them(cli, module):
    listed = cli("methods", "--import", module, "--json").json["methods"]
    (mine,) = [method for method in listed if method["name"] == "mine"]
    assert mine["class"] == f"{module}:Mine"
    assert f"class: {module}:Mine" in cli("methods", "mine").out
    graphs = {entry["name"]: entry for entry in cli("datasets", "--json").json["datasets"]}
    assert graphs["mine-graph"]["made_by"] == f"{module}:small"
    assert f"{module}:small" in cli("datasets").out


def test_refusals_are_one_line(cli, module):
    cli("train", "--import", "not_here").refused("There is no module 'not_here'.")
    cli("train", "--method", "not_here:Mine").refused("There is no module 'not_here'.")
    cli("train", "--method", f"{module}:Main").refused("Did you mean 'Mine'?")
    (cli.cwd / f"{module}_bad.py").write_text("1 / 0\n")
    cli("methods", "--import", f"{module}_bad").refused("ZeroDivisionError: division by zero.")


def test_embeddings_from_elsewhere_stand_beside_the_controls(cli, inputs, raw_run):
    table = cli("evaluate", *inputs, "--embeddings", raw_run / "embeddings.npy", "--json").json
    ours = cli("evaluate", raw_run, "--json").json
    assert table["method"] == "embeddings"
    assert table["strict"]["mean"] == pytest.approx(ours["strict"]["mean"])
    assert table["health"][0]["nodes"] == 30
    shown = cli("evaluate", *inputs, "--embeddings", raw_run / "embeddings.npy").out
    assert "Embedding health: mean cosine" in shown


def test_embeddings_go_with_a_graph_alone(cli, inputs, raw_run):
    z = ["--embeddings", raw_run / "embeddings.npy"]
    beside = ["--seeds", 2], ["--method", "raw"], ["--task", "cluster"]
    for words in ([raw_run], *([*inputs, *more] for more in beside)):
        cli("evaluate", *words, *z).refused("--embeddings belongs to a graph, in place of a")
    cli("evaluate", *inputs, *z, "--probe", "published").refused("need a trained model")
    cli("evaluate", "mixed", *z).refused("a row for each of the", "Got 30 rows")
    cli("evaluate", *inputs, "--embeddings", "z.xlsx").refused("Got the name 'z.xlsx'")
