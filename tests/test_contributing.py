"""The how-tos of CONTRIBUTING.md, done in a copy of the package."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aspect

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
HOW_TOS = {
    title: body
    for title, body in re.findall(r"^## (Add an? [a-z ]+)\n(.*?)(?=^## )", TEXT, re.DOTALL | re.M)
    if "```console" in body
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the package, with one data set beside it."""
    root = tmp_path_factory.mktemp("clone")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(aspect.__file__).parent, root / "src" / "aspect", ignore=ignored)
    (root / "data").mkdir()
    shutil.copy(Path(os.environ["ASPECT_DATA"]) / "texas.npz", root / "data")
    return root


@pytest.mark.data
@pytest.mark.parametrize("title", HOW_TOS)
def test_a_how_to_works_as_it_stands_there(source, title):
    body = HOW_TOS[title]
    for path, code in re.findall(r"```python\n# (src/\S+)\n(.*?)```", body, re.DOTALL):
        (source / path).write_text(code, encoding="utf-8")
    environment = os.environ | {
        "PYTHONPATH": str(source / "src"),
        "ASPECT_DATA": str(source / "data"),
    }
    programs = {"aspect": [sys.executable, "-m", "aspect"], "python": [sys.executable]}
    (console,) = re.findall(r"```console\n(.*?)```", body, re.DOTALL)
    for line in console.splitlines():
        program, *words = shlex.split(line)
        command = [*programs[program], *words]
        done = subprocess.run(
            command, cwd=source, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_there_is_a_how_to_for_each_kind_of_part():
    assert set(HOW_TOS) == {
        "Add a method",
        "Add a loss",
        "Add an attack",
        "Add a data set",
    }
