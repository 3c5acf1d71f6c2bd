"""`aspect attack` as a user meets it: files, an interrupt, several splits, and wrong words."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.attacks.run import run_attack
from aspect.data.archives import write_npz
from aspect.data.source import read_graph
from attacks.attempts import labelled_graph, with_published

from .conftest import TINY, write_tables

FILE = "attack.safetensors"


def test_a_file_and_what_is_said_of_it(cli, inputs):
    found = cli("attack", *inputs, "--flips", 12, "--split", 1, "--out", FILE, "--json").json
    assert found["out"] == FILE
    assert found["flips"] == 12
    assert found["seconds"] > 0
    assert found["peak_memory_bytes"] > 2**20
    (own,) = found["files"]
    assert (own["kind"], own["solver"], own["split"]) == ("metattack", "implicit", 1)
    assert own["complete"]
    trace = PerturbationFile.read(FILE)
    assert len(trace.keys) == 12
    assert own["reached"] == trace.reached == 12 / trace.facts.graph.edges
    assert trace.state == {}
    labelled = read_graph(inputs[0], nodes=inputs[2])
    assert trace.apply(labelled, 0.1).num_nodes == 30


def test_without_a_split_the_first_is_taken_and_said_so(cli, inputs):
    named = cli("attack", *inputs, "--flips", 3, "--split", 0, "--out", "named", "--json")
    done = cli("attack", *inputs, "--flips", 3, "--out", "first", "--json")
    assert done.json["files"][0]["split"] == 0
    assert "No split is named: the attacker knows the training labels of class-balanced" in done.err
    assert "No split is named" not in named.err
    flips = [PerturbationFile.read(cli.cwd / name).keys.tolist() for name in ("named", "first")]
    assert flips[0] == flips[1]


def test_the_objective_and_what_is_avoided_are_settings_in_the_file(cli, inputs):
    settings = ["--set", "train_weight=meta-train", "--set", "avoid_below=0.2"]
    for kind in ("metattack", "pr-bcd"):
        given = settings if kind == "metattack" else settings[2:]
        done = cli("attack", *inputs, "--kind", kind, "--flips", 2, *given, "--out", kind, "--json")
        stored = PerturbationFile.read(cli.cwd / kind).facts.settings
        assert done.json["files"][0]["settings"] == stored
        assert stored["avoid_below"] == 0.2
        assert stored.get("train_weight", 1.0) == 1.0


def test_before_it_starts_it_says_time_and_memory(cli, inputs):
    done = cli("attack", *inputs, "--budget", 0.3, "--split", 0, "--out", FILE)
    assert done.code == 0, done.err
    first, second = (line for line in done.err.splitlines() if line.startswith("metattack"))
    assert "metattack (implicit) on edges, class-balanced split 0: " in first
    assert "MiB of memory" in first
    assert "s left, by the pace of the first flips" in second
    assert FILE in done.out


def test_the_memory_foretold_is_about_that_taken(process):
    settings = ["--solver", "unrolled", "--set", "inner_steps=20", "--set", "flips_per_gradient=9"]
    done = process(
        "attack", "mixed", "--flips", 9, "--split", 0, *settings, "--out", FILE, "--json"
    )
    foretold = float(done.err.split("with about ")[1].split()[0]) * 2**20
    taken = done.json["peak_memory_bytes"]
    assert 0.7 < foretold / taken < 1.4


@pytest.mark.parametrize("kind", ["metattack", "dice"])
def test_several_splits_have_a_folder(cli, inputs, kind):
    several = ["--split", 0, "--split", 2, "--split", 0, "--kind", kind]
    found = cli("attack", *inputs, "--flips", 4, *several, "--out", "new/folder", "--json").json
    assert found["flips"] == 8
    name = f"edges-{kind}{'-implicit' if kind == 'metattack' else ''}-class-balanced"
    files = [f"new/folder/{name}-{split}.safetensors" for split in (0, 2)]
    assert [each["out"] for each in found["files"]] == files
    assert sorted(map(str, Path("new/folder").iterdir())) == files
    assert [PerturbationFile.read(file).facts.split for file in files] == [0, 2]


def test_all_splits_and_again(cli, inputs):
    arguments = ["attack", *inputs, "--kind", "random", "--budget", 0.1, "--all-splits"]
    arguments += ["--out", "all", "--json"]
    assert len(cli(*arguments).json["files"]) == 10
    before = {path: path.read_bytes() for path in Path("all").iterdir()}
    cli(*arguments).refused("exists", "--resume", "--overwrite")
    again = cli(*arguments, "--resume")
    assert all(each["kept"] == each["flips"] for each in again.json["files"])
    assert "flips are in all/edges-random-class-balanced-0.safetensors already" in again.err
    assert {path: path.read_bytes() for path in Path("all").iterdir()} == before
    assert cli(*arguments, "--overwrite").code == 0


def test_an_interrupt_keeps_what_was_written(cli, inputs, monkeypatch):
    def interrupted(planned, file, on_progress):
        def listen(progress):
            if progress.made >= 6:
                os.kill(os.getpid(), signal.SIGINT)
            on_progress(progress)

        return run_attack(planned, file, listen, seconds_between_writes=0.0)

    arguments = ["attack", *inputs, "--flips", 12, "--split", 0, "--out", FILE]
    with monkeypatch.context() as patch:
        patch.setattr("aspect.attacks.run.run_attack", interrupted)
        done = cli(*arguments)
    assert done.code == 130
    kept = len(PerturbationFile.read(FILE).keys)
    assert f"Interrupted. {kept} of 12 flips are in {FILE}. Go on with --resume." in done.err
    cli(*arguments).refused("exists", "--resume")
    found = cli(*arguments, "--resume", "--json").json["files"][0]
    assert (found["kept"], found["flips"]) == (kept, 12)
    assert cli(*arguments[:-1], "whole.safetensors").code == 0
    assert torch.equal(
        PerturbationFile.read(FILE).keys, PerturbationFile.read("whole.safetensors").keys
    )


def test_labels_outside_of_the_training_nodes_change_no_flip(cli):
    """The same graph with other classes for all nodes that the split does not teach."""
    clean = with_published(labelled_graph())
    train = clean.masks["train"][0]
    labels = torch.where(train, clean.labels, (clean.labels + 1) % clean.num_classes)
    write_npz("clean.npz", clean)
    write_npz("other.npz", replace(clean, labels=labels))
    for kind in ("metattack", "dice"):
        for graph in ("clean", "other"):
            arguments = [f"{graph}.npz", "--kind", kind, "--flips", 10, "--out", f"{kind}-{graph}"]
            arguments += ["--splits", "published", "--split", 0, "--device", "cpu"]
            assert cli("attack", *arguments).code == 0
        first, second = (PerturbationFile.read(f"{kind}-{graph}") for graph in ("clean", "other"))
        assert first.facts.graph.sha256 != second.facts.graph.sha256
        assert torch.equal(first.keys, second.keys)


# Bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", 1e-5, "--split", 0], "allows no flip of"),
        (["--flips", 436, "--split", 0], "from 1 to 435, the pairs of nodes. Got 436"),
        (["--flips", 300, "--split", 0, "--kind", "dice"], "Number of flips must be at most"),
        (["--flips", 3, "--split", 0, "--set", "rigde=1"], "Did you mean 'ridge'?"),
        (["--flips", 3, "--split", 0, "--set", "ridge=-1"], "'ridge'"),
        (["--flips", 3, "--split", 0, "--kind", "random", "--set", "ridge=1"], "of random"),
        (["--flips", 3, "--split", 0, "--splits", "published"], "No masks were given"),
        (["--flips", 3, "--split", 0, "--device", "tpu"], "Unknown device 'tpu'"),
    ],
)
def test_what_the_graph_does_not_allow_is_refused(cli, inputs, options, words):
    cli("attack", *inputs, *options, "--out", FILE).refused(words)
    assert list(cli.cwd.iterdir()) == []


def test_graphs_that_cannot_be_attacked(cli, tables, unlabelled):
    wanted = ["--flips", 3, "--split", 0, "--out", FILE, "--device", "cpu"]
    folder = unlabelled.parent / "tables"
    bare = [folder / "edges.csv", "--nodes", folder / "nodes.csv"]
    cli("attack", *bare, *wanted).refused("no node has one")
    loop = "source,target\nperson 00/ä,person 00/ä\n"
    Path("loop.csv").write_text(loop, encoding="utf-8")
    alone = ["loop.csv", "--nodes", tables / "nodes.csv"]
    cli("attack", *alone, *wanted).refused("An attack needs edges to flip")
    assert not Path(FILE).exists()


def test_files_that_are_not_to_be_touched(cli, inputs, tables, trained):
    wanted = [*inputs, "--flips", 3, "--split", 0]
    Path("taken").write_text("mine")
    cli("attack", *wanted, "--out", "taken").refused("exists", "--resume", "--overwrite")
    cli("attack", *wanted, "--out", "taken", "--resume").refused("--overwrite to begin anew")
    cli("attack", *wanted, "--split", 1, "--out", "taken").refused("must be a folder")
    assert Path("taken").read_text() == "mine"
    nodes = tables / "nodes.csv"
    before = nodes.read_bytes()
    cli("attack", *wanted, "--out", nodes, "--overwrite").refused("is one of the inputs")
    assert nodes.read_bytes() == before
    cli("attack", *wanted, "--out", trained / "x").refused("would lie in a run's folder")
    cli("attack", *wanted, "--split", 1, "--out", trained).refused("is a run's folder")


def test_a_file_of_another_graph_is_not_gone_on_with(cli, inputs, tmp_path):
    wanted = ["--flips", 3, "--split", 0, "--out", FILE]
    assert cli("attack", *inputs, *wanted).code == 0
    before = Path(FILE).read_bytes()
    folder = tmp_path / "other"
    folder.mkdir()
    write_tables(folder, count=31)
    other = [folder / "edges.csv", "--nodes", folder / "nodes.csv", "--device", "cpu"]
    cli("attack", *other, *wanted, "--resume").refused("belongs to another graph, 'edges'")
    cli("attack", *inputs, "--flips", 4, *wanted[2:], "--resume").refused("cannot go on to 4")
    cli("attack", *inputs, *wanted, "--solver", "unrolled", "--resume").refused("'implicit'")
    assert Path(FILE).read_bytes() == before


@pytest.mark.parametrize("kind", ["gradient", "pr-bcd"])
def test_an_attack_that_is_not_nested_has_a_file_for_each_budget(cli, inputs, kind):
    arguments = ["attack", *inputs, "--kind", kind, "--split", 0, "--split", 1, "--out", "new"]
    arguments += ["--set", "block_size=200", "--set", "epochs=8"] if kind == "pr-bcd" else []
    done = cli(*arguments, "--flips", 6, "--json")
    assert 0 < done.json["flips"] <= 12
    is_foretold = "MiB of memory so far; the search takes more." not in done.err
    assert is_foretold == (kind == "pr-bcd")
    for path in Path("new").iterdir():
        assert path.name.endswith("-6-flips.safetensors")
        file = PerturbationFile.read(path)
        assert file.apply(read_graph(inputs[0], nodes=inputs[2]), file.perturbation().budget)


def test_an_attack_that_flips_no_edges_is_refused_first_and_not_listed(cli):
    wanted = ["--kind", "feature", "--flips", 3, "--split", 0, "--out", "x"]
    cli("attack", "no-such-graph.csv", *wanted).refused("feature flips no edges")
    listed = cli("attack", "--help").out
    assert "gradient" in listed
    assert "feature," not in listed


@pytest.mark.parametrize("kind", ["random", "gradient"])
def test_an_attack_without_labels_needs_none(cli, inputs, unlabelled, kind):
    tables = unlabelled.parent / "tables"
    graph = [tables / "edges.csv", "--nodes", tables / "nodes.csv"]
    wanted = ["--kind", kind, "--flips", 3, "--out", FILE]
    for given in (inputs, graph):
        done = cli("attack", *given, *wanted, "--overwrite", "--json")
        assert done.json["flips"] > 0
        assert "knows" not in done.err
        assert "reads no labels" in done.err
    out = ["--out", "poisoned"]
    assert cli("train", *graph, *TINY, "--perturbation", FILE, *out).code == 0
    cli("attack", *graph, *wanted[:4], "--all-splits", "--out", "all").refused(
        "The graph has fewer than 2 classes, hence no splits. Leave --all-splits out."
    )
    cli("attack", *graph, "--flips", 3, "--out", "x").refused("Splits need labels")


def test_single_nodes_are_attacked_by_their_ids(cli, inputs, tables):
    ids = [line.split(",")[0] for line in (tables / "nodes.csv").read_text("utf-8").splitlines()]
    wanted = ["attack", *inputs, "--kind", "nettack", "--split", 0, "--out", FILE]
    found = cli(
        *wanted, "--target-node", ids[5], "--target-node", ids[9], "--flips", 3, "--json"
    ).json
    assert found["files"][0]["settings"]["targets"] == [4, 8]
    flips = PerturbationFile.read(FILE).first(6)
    assert found["flips"] == len(flips) == 6
    assert bool(torch.isin(flips, torch.tensor([4, 8])).any(dim=1).all())
    scored = ["--method", "propagated", "--perturbation", FILE, "--mode", "evade", "--json"]
    table = cli("evaluate", *inputs, *scored).json
    assert (table["kind"], table["features"]) == ("nettack", False)
    assert "scored at its targets alone" in table["notices"][0]
    # Without a number of flips, as many as the target's degree and two more.
    degree = int(read_graph(inputs[0], nodes=inputs[2]).graph.degrees()[4])
    alone = cli(*wanted, "--target-node", ids[5], "--overwrite", "--json").json
    assert alone["flips"] == degree + 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--flips", 3], "none is named. Name some: --target-node NODE"),
        (["--target-node", "nobody"], "The node must be an id of the graph. Got 'nobody'"),
        (["--target-node", "nobody", "--flips", 0], "flips"),
        (
            ["--target-node", "nobody", "--kind", "dice", "--flips", 3],
            "--target-node belongs to nettack",
        ),
        (["--set", "targets=[4]", "--budget", 0.1], "takes a number of flips at each target"),
        (["--set", "targets=[400]"], "Targets must be nodes from 0 to 29. Got 400"),
    ],
)
def test_wrong_targets_are_refused_in_a_sentence(cli, inputs, words, sentence):
    kind = [] if "--kind" in words else ["--kind", "nettack"]
    cli("attack", *inputs, *kind, *words, "--split", 0, "--out", FILE).refused(sentence)


def test_a_perturbation_from_elsewhere_becomes_a_file(cli, inputs, tables):
    rows = (tables / "edges.csv").read_text().splitlines()
    (cli.cwd / "after.csv").write_text("\n".join(rows[:-3]) + "\n")
    words = ["--split", 0, "--split", 1, "--splits", "random", "--out", "flips", "--json"]
    content = cli("attack", *inputs, "--from", "after.csv", *words).json
    assert (content["flips"], content["added"], content["removed"]) == (3, 0, 3)
    assert [file["kind"] for file in content["files"]] == ["imported"] * 2
    table = cli("evaluate", *inputs, "--method", "raw", "--perturbation", "flips", "--json").json
    assert (table["kind"], table["features"]) == ("imported", False)
    (cli.cwd / "flips.csv").write_text("\n".join([rows[0], *rows[-3:]]) + "\n")
    one = ["--split", 0, "--out", "one.safetensors"]
    done = cli("attack", *inputs, "--from-flips", "flips.csv", "--flips", 2, *one)
    assert "Wrote 2 flips (0 added edges, 2 removed)" in done.out
    cli("attack", *inputs, "--from-flips", "flips.csv", *one).refused("exists")
    assert cli("attack", *inputs, "--from-flips", "flips.csv", *one, "--overwrite").code == 0
    itself = ["--from-flips", "flips.csv", "--overwrite", "--split", 0, "--out", "flips.csv"]
    cli("attack", *inputs, *itself).refused("'flips.csv' is one of the inputs")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--from", "a.csv", "--from-flips", "b.csv"], "one of them. Got both"),
        (["--from", "a.csv", "--budget", "0.1"], "leave --budget and --flips out"),
        (["--from", "a.csv", "--kind", "dice"], "and not to the import"),
        (["--from", "a.csv", "--resume"], "and not to the import"),
        (["--from-flips", "b.csv", "--budget", "0.1", "--flips", "2"], "one of them. Got both"),
        (["--from", "none.csv"], "there is no such file"),
        (["--kind", "imported", "--budget", "0.1"], "aspect attack GRAPH --from FILE"),
    ],
)
def test_a_wrong_import_is_one_line(cli, inputs, words, sentence):
    cli("attack", *inputs, *words, "--split", 0, "--out", "x.safetensors").refused(sentence)


def test_more_flips_than_are_listed_are_refused(cli, inputs, tables):
    rows = (tables / "edges.csv").read_text().splitlines()
    (cli.cwd / "flips.csv").write_text("\n".join(rows[:3]) + "\n")
    words = ["--from-flips", "flips.csv", "--flips", 9, "--split", 0, "--out", "x.safetensors"]
    cli("attack", *inputs, *words).refused(
        "lists 2 flips. Got a budget of 9: lower --budget or --flips"
    )
