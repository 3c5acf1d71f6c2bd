"""The page on plug-ins, done as it stands there: a package with a method, and its commands."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from aspect.cli.main import run
from aspect.plugins import _offered
from aspect.testing import METHOD_CHECKS
from foreign import registries  # noqa: F401 - a fixture

TEXT = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
MODULE = "aspect_smoothed"


@pytest.fixture
def package(tmp_path, monkeypatch, registries):  # noqa: ARG001, F811 - names are forgotten
    """The files of the page, installed as pip would: a module, and what it offers."""
    for name, content in re.findall(r"```\w+\n# (\S+)\n(.*?)```", TEXT, re.DOTALL):
        (tmp_path / name).write_text(content, encoding="utf-8")
    whole = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert whole["tool"]["setuptools"]["py-modules"] == [MODULE]  # else pip finds two, and refuses
    project = whole["project"]
    info = tmp_path / f"{MODULE}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    _offered.cache_clear()
    yield tmp_path
    sys.modules.pop(MODULE, None)


def test_every_command_of_the_page_works(package, capfd):
    np.save(package / "z.npy", np.random.default_rng(0).normal(size=(60, 4)))
    pairs = [(node, node // 30 * 30 + (node + 1) % 30) for node in range(3, 60)] + [(0, 40)]
    rows = "".join(f"{one},{other}\n" for one, other in pairs)
    (package / "after.csv").write_text(f"source,target\n{rows}")
    bodies = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    lines = [line for body in bodies for line in body.splitlines()]
    assert len(lines) == 9
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "aspect"
        assert run(words) == 0, f"{line}\n{capfd.readouterr().err}"
    text = (package / "runs/smoothed/config.yaml").read_text()
    assert text.startswith(f"method: {MODULE}:Smoothed\ngraph: {MODULE}:two_rings\n")


def test_the_method_of_the_page_holds_to_the_contract(package):
    test = {}
    exec(compile((package / "test_contract.py").read_text(), "test_contract.py", "exec"), test)  # noqa: S102
    for check in METHOD_CHECKS:
        test["test_smoothed_holds_to_the_contract"](check)


def test_the_page_names_every_check():
    rows = TEXT.partition("| check |")[2].partition("\n\n")[0].splitlines()
    named = [name for row in rows[2:] for name in re.findall(r"`([a-z ]+)`", row.split("|")[1])]
    assert sorted(named) == sorted(METHOD_CHECKS)
