"""Every command answers by a schema of its own, with a version, errors included."""

import json

import pytest

from aspect.cli.answers import ANSWERS, json_schema, schema_of
from aspect.cli.main import commands, run

NAMES = [function.__name__ for function in commands]
# Of every command, a call that its own checks refuse, before anything heavy is imported.
REFUSED = {
    "check": ["koora"],
    "train": ["koora"],
    "embed": ["run", "cora", "--add", "new.csv", "--out", "z.npy"],
    "evaluate": ["koora"],
    "neighbours": ["nowhere", "a"],
    "inspect": ["nowhere"],
    "attack": ["cora", "--split", "0", "--out", "x"],
    "stability": ["nowhere"],
    "bench": ["smooke"],
    "tune": ["koora"],
    "report": ["nowhere"],
    "datasets": ["--name", "mine"],
    "methods": ["aspekt"],
    "demo": ["--import", "not_here"],
    "theory": ["--import", "not_here"],
    "plan": ["--nodes", "10"],
    "generate": ["--nodes", "3", "--out", "graph"],
    "store": ["edges.parquet", "--out", "graph"],
    "cluster": ["--import", "not_here"],
}


def test_every_command_has_a_schema():
    assert set(ANSWERS) == {"error", *NAMES} == {"error", *REFUSED}


@pytest.mark.parametrize("command", ANSWERS)
def test_schemas_are_documented(command):
    schema = json_schema(command)
    assert schema["$id"] == schema_of(command) == schema["properties"]["schema"]["const"]
    undocumented = [
        key
        for key, value in schema["properties"].items()
        if key != "schema" and not value.get("description", "").endswith(".")
    ]
    assert undocumented == []


@pytest.mark.parametrize("command", NAMES)
@pytest.mark.parametrize("is_usage", [False, True])
def test_an_error_is_an_answer(command, is_usage, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--no-such-option"] if is_usage else REFUSED[command]
    assert run([command, *words, "--json"]) == 2
    told = capfd.readouterr()
    content = json.loads(told.out)
    assert content.pop("schema") == "aspect/error/1"
    answer = ANSWERS["error"].model_validate(content)
    assert (answer.command, answer.exit_code) == (command, 2)
    assert told.err.splitlines()[-1] == f"Error: {answer.error['message']}"
    assert (answer.error["kind"] == "UsageError") == is_usage
