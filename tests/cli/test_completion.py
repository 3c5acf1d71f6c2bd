"""What a shell gets for half a word, at once: without torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import aspect
from aspect.methods.registry import find_method, method_names, setting_names

SCRIPT = """
import os, sys
from aspect.cli.main import app
sys.argv = ["aspect"]
try:
    app(prog_name="aspect")
except SystemExit:
    pass
heavy = [name for name in ("torch", "numpy", "pyarrow", "sklearn") if name in sys.modules]
print("HEAVY", *heavy)
"""


def completed(line, tmp_path):
    """What bash would offer for the last word of a line."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(aspect.__file__).parents[1]), str(tmp_path)]),
        "ASPECT_DATA": str(tmp_path),
        "_ASPECT_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    *offered, heavy = done.stdout.splitlines()
    assert heavy == "HEAVY"
    return [word for word in offered if word]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("aspect tra", ["train"]),
        ("aspect train cor", ["cora", "cornell", "cornell_old"]),
        ("aspect train cora --meth", ["--method"]),
        ("aspect train cora --method asp", ["aspect", "aspect-ensemble", "aspect-s"]),
        ("aspect train cora --method grace --set tau", []),
        ("aspect train cora --method grace --set epo", ["epochs="]),
        ("aspect tune texas --set gate_w", ["gate_width="]),
        ("aspect attack cora --kind met", ["metattack"]),
        ("aspect bench smo", ["smoke"]),
        ("aspect evaluate texas --splits ran", ["random"]),
        ("aspect methods bg", ["bgrl"]),
    ],
)
def test_words_are_completed_without_torch(line, offered, tmp_path):
    assert completed(line, tmp_path) == offered


def test_names_of_plug_ins_are_offered_without_importing_them(tmp_path):
    """Not even installed: to import the module would fail."""
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    points = "[aspect.datasets]\nmy-rings = mine:rings\n[aspect.methods]\nmy-method = mine:Mine\n"
    (info / "entry_points.txt").write_text(points)
    assert completed("aspect train my-", tmp_path) == ["my-rings"]
    assert completed("aspect train cora --method my-", tmp_path) == ["my-method"]


@pytest.mark.parametrize("method", method_names())
def test_settings_read_from_the_source_are_those_of_the_class(method):
    assert set(setting_names(method)) == set(find_method(method).config.model_fields)
