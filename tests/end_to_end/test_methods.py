"""`aspect methods`: the list, one method whole, and wrong names."""

import pytest

from aspect.methods.registry import find_method, method_names


def test_the_list_has_every_method_with_its_abilities(cli):
    found = cli("methods", "--json").json
    assert list(found) == ["schema", "methods"]
    entries = {entry["name"]: entry for entry in found["methods"]}
    assert list(entries) == method_names()
    assert entries["grace"]["needs_quadratic_time"] is True
    assert entries["bgrl"]["needs_quadratic_time"] is False
    assert entries["random"]["needs_quadratic_time"] is False
    assert entries["raw"]["paper"] is None
    for name, entry in entries.items():
        method = find_method(name).method
        assert entry["inductive"] == method.inductive
        assert entry["mini_batch"] == method.mini_batch
    shown = cli("methods").out
    assert all(f"{name}: " in shown for name in entries)
    assert "Thakoor et al., ICLR 2022" in shown


def test_one_method_is_shown_whole(cli):
    shown = cli("methods", "dgi").out
    assert "family: node against summary" in shown
    assert "needs n^2 time per epoch: no" in shown
    assert "embeds graphs it was not trained on: yes" in shown
    assert "trains in mini-batches: no" in shown
    assert "Y. Bengio and R. D. Hjelm: Deep Graph Infomax. ICLR 2019." in shown
    assert "@inproceedings{velickovic2019deep," in shown
    assert "0.0001 to 0.01, log" in shown
    official = "Settings shipped, official: "
    (line,) = [line for line in shown.splitlines() if line.startswith(official)]
    assert "pubmed" in line.removeprefix(official).split(", ")
    shown = cli("methods", "aspect").out
    assert "Settings shipped, ours: actor" in shown
    assert "by --config published: actor" in shown
    assert "by --config paper: " in shown


def test_a_control_has_nothing_to_cite_and_no_settings_of_its_own(cli):
    shown = cli("methods", "raw").out
    assert "paper: none to cite" in shown
    assert "cost per epoch: not trained" in shown
    assert "No settings are shipped: the defaults serve every graph." in shown


@pytest.mark.parametrize("name", ["grace", "raw"])
def test_one_method_answers_with_one_json_object(cli, name):
    done = cli("methods", name, "--json")
    assert done.out.count("\n") == 1
    found = done.json
    assert found["name"] == name
    assert (found["citation"] is None) == (found["bibtex"] is None) == (name == "raw")
    assert [each["name"] for each in found["settings"]] == list(
        find_method(name).config.model_fields
    )
    if name == "grace":
        assert found["citation"]["year"] == 2020
        assert found["citation"]["reference"].endswith("ICML Workshop GRL+ 2020.")
        shipped = {(each["graph"], each["official"]) for each in found["shipped"]}
        assert {("cora", True), ("cora", False)} <= shipped
