"""The suite is collected where optional packages are missing; what needs them is skipped."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDY = {"ray": "tests/end_to_end/test_ray.py", "nbformat": "tests/test_notebooks.py"}

COLLECT = """
import sys, pytest
sys.modules.update(dict.fromkeys({missing}))  # importing these fails
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *{files}]))
"""


def collect(missing, files):
    code = COLLECT.format(missing=missing, files=files)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_modules_that_need_a_missing_package_are_skipped_with_its_name():
    found = collect([*NEEDY], [*NEEDY.values(), "tests/test_randomness.py"])
    assert found.returncode == 0, found.stdout
    for package, file in NEEDY.items():
        assert f"{file}:0: {package} is not installed" in found.stdout
    assert "test_randomness.py::" in found.stdout


def test_any_other_broken_import_is_an_error():
    found = collect(["aspect.randomness"], ["tests/test_randomness.py"])
    assert found.returncode == 2
    assert "aspect.randomness" in found.stdout
