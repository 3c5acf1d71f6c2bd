"""`aspect stability` as a user meets it: a table, a file, perturbation files, and wrong words."""

import json
import shutil

import pytest

from aspect.evaluation.stability_request import DEFAULT_KINDS
from aspect.methods.controls import RawFeatures

from .conftest import snapshot, write_tables

FEW = ["--budget", 0.1, "--num-splits", 1]


def test_the_table_and_the_file_tell_the_same(cli, trained):
    done = cli("stability", trained, "--budget", "0.05,0.2", "--num-splits", 2, "--out", "s.json")
    assert done.code == 0, done.err
    content = json.loads((cli.cwd / "s.json").read_text(encoding="utf-8"))
    lines = [line for line in done.out.splitlines() if "->" in line]
    assert len(lines) == len(content["rows"]) == 2 * len(DEFAULT_KINDS)
    for line, row in zip(lines, content["rows"], strict=True):
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        changed = row["flips"] or row["masked_entries"]
        before, after = row["clean"]["mean"], row["perturbed"]["mean"]
        assert cells[:3] == [row["title"], f"{100 * row['budget']:g}%", f"{changed:.0f}"]
        shifts = [row["relative_shift"]["mean"], row["shift"]["mean"], row["gate_shift"]]
        assert cells[3:6] == [f"{shift:.4f}" for shift in shifts]
        assert cells[6] == f"{before:.2f} -> {after:.2f}"
        assert float(cells[7]) == pytest.approx(100 * (before - after) / before, abs=0.005)
    assert "aspect on edges (30 nodes, " in done.out
    worst = max(content["rows"][1::2], key=lambda row: row["drop"])
    harm = f"{worst['title']} lowers the accuracy most, by {worst['drop']:.2f}%."
    nothing = "nothing that was tried lowers the accuracy."
    assert f"At 20% {harm if worst['drop'] > 0 else nothing}" in done.out
    assert "divided by the mean distance of two nodes before" in done.out
    assert content["splits"] == "random"


def test_the_same_command_gives_the_same_numbers_and_leaves_the_run_as_it_was(cli, trained):
    before = snapshot(trained)
    command = ["stability", trained, "--kind", "feature,random", *FEW, "--json"]
    found = cli(*command).json
    assert cli(*command).json == found
    other = cli(*command, "--seed", 7).json
    assert other["rows"] != found["rows"]
    assert other["clean"] == found["clean"]
    assert snapshot(trained) == before
    assert [row["kind"] for row in found["rows"]] == ["random", "feature"]
    assert found["run"] == str(trained)
    assert found["graph"] == "edges"
    assert found["method"] == "aspect"
    assert found["split_numbers"] == [0]
    assert found["perturbations"] == []


def test_a_graph_without_labels_has_shifts_alone(cli, unlabelled):
    done = cli("stability", unlabelled, *FEW)
    assert done.code == 0, done.err
    assert "->" not in done.out
    assert "drop" not in done.out
    assert "Only the shifts are measured, since no probe can be trained." in done.out
    assert "At 10% " in done.out
    assert "moves embeddings most: a relative shift of 0." in done.out
    assert "metattack is left out: it needs the classes of training nodes." in done.out
    cli("stability", unlabelled, *FEW, "--kind", "metattack").refused("needs the classes")


def test_a_method_without_filters_says_where_its_flips_come_from(cli, raw_run):
    done = cli("stability", raw_run, *FEW, "--kind", "gradient")
    assert done.code == 0, done.err
    assert "gradient (transferred): found on an ASPECT trained on the same graph" in done.out
    assert "gate" not in done.out
    assert "At 10% nothing that was tried lowers the accuracy." in done.out


def test_perturbation_files_stand_in_for_the_attack(cli, inputs, trained):
    attack = ["attack", *inputs, "--budget", 0.2, "--split", 1, "--split", 2, "--device", "cpu"]
    attack += ["--splits", "random"]
    assert cli(*attack, "--out", "flips").code == 0
    options = ["--kind", "metattack", "--budget", 0.05, "--budget", 0.2]
    found = cli("stability", trained, *options, "--perturbation", "flips", "--json").json
    assert [row["title"] for row in found["rows"]] == ["metattack (implicit)"] * 2
    assert found["split_numbers"] == [1, 2]
    assert [each["split"] for each in found["rows"][0]["measurements"]] == [1, 2]
    assert len(found["perturbations"]) == 2
    # The attack that is made here is the one that the command makes.
    here = cli("stability", trained, *options, "--num-splits", 3, "--json").json
    for own, their in zip(found["rows"], here["rows"], strict=True):
        assert own["measurements"] == their["measurements"][1:]


def test_several_attacks_have_rows_of_their_own(cli, inputs, trained):
    for kind in ("dice", "random"):
        attack = ["attack", *inputs, "--kind", kind, "--budget", 0.1, "--split", 0]
        assert cli(*attack, "--out", f"{kind}.safetensors").code == 0
    files = ["--perturbation", "dice.safetensors", "--perturbation", "random.safetensors"]
    found = cli("stability", trained, "--kind", "random", "--budget", 0.1, *files, "--json").json
    assert [row["title"] for row in found["rows"]] == ["random", "dice", "random"]
    drawn, _, read = found["rows"]
    assert drawn["measurements"] == read["measurements"]  # the same flips, drawn twice


def test_files_that_do_not_fit_are_refused(cli, file, trained, tmp_path):
    given = ["stability", trained, "--perturbation", file]
    cli(*given, "--budget", 0.3).refused(file.name, "run a longer attack")
    cli(*given, "--budget", 0.1, "--num-splits", 2).refused("for 1 splits", "--num-splits 2")
    cli(*given, "--budget", 0.1, "--splits", "random").refused("class-balanced", "--splits random")
    cli("stability", trained, "--perturbation", "no.safetensors").refused("no.safetensors")
    (tmp_path / "other").mkdir()
    other = write_tables(tmp_path / "other", count=31)
    own = [other / "edges.csv", "--nodes", other / "nodes.csv", "--method", "raw"]
    assert cli("train", *own, "--out", "other-run").code == 0
    refused = cli("stability", "other-run", "--perturbation", file, "--budget", 0.1)
    refused.refused("belongs to the graph")


def test_a_file_of_a_targeted_attack_is_refused_as_its_kind_is(cli, inputs, trained):
    wanted = ["--kind", "nettack", "--set", "targets=[4]", "--flips", 2, "--out", "n.safetensors"]
    assert cli("attack", *inputs, *wanted, "--split", 0).code == 0
    told = "nettack attacks single nodes, and stability is of whole graphs: leave it out."
    cli("stability", trained, "--kind", "nettack").refused(told)
    cli("stability", trained, "--perturbation", "n.safetensors").refused(told)


def test_a_run_on_a_poisoned_graph_is_compared_with_itself(cli, poisoned, file):
    found = cli("stability", poisoned, "--budget", 0.1, "--kind", "random", "--json").json
    assert found["split_numbers"] == [2]
    record = json.loads((poisoned / "record.json").read_text(encoding="utf-8"))
    assert found["edges"] == record["perturbation"]["edges"]
    assert "counts as the clean one here" in found["notices"][0]
    again = ["stability", poisoned, "--budget", 0.1]
    cli(*again, "--perturbation", file).refused("--perturbation does not go with it")
    cli(*again, "--num-splits", 2).refused("--num-splits does not go with it")
    cli(*again, "--splits", "random").refused("--splits random")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget", "0.001"], "Budget of 0.001 allows no change of"),
        (["--num-splits", "11"], "from 1 to 10. Got 11."),
        (["--splits", "published"], "publishes no splits"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_words_are_one_sentence(cli, trained, words, sentence):
    cli("stability", trained, *words).refused(sentence)


def test_what_is_no_complete_run_is_refused(cli, trained):
    unfinished = cli.cwd / "unfinished"
    shutil.copytree(trained, unfinished)
    (unfinished / "record.json").unlink()
    cli("stability", "unfinished").refused("is not complete. Go on with: aspect train --out")
    cli("stability", trained, "--out", trained / "s.json").refused("would lie in a run's folder")
    (cli.cwd / "s.json").write_text("{}")
    cli("stability", trained, "--out", "s.json").refused("s.json", "--overwrite")


def test_a_method_that_knows_one_graph_is_refused(cli, raw_run, monkeypatch):
    monkeypatch.setattr(RawFeatures, "inductive", False)
    cli("stability", raw_run).refused("raw cannot embed a graph that it was not trained on")
