"""How large the code is, and how much of it one training passes through.

Prints lines, files, functions and classes of the package, class names that are used twice, the
package's files and functions that `aspect train GRAPH` passes through, and start-up times.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import aspect

PACKAGE = Path(aspect.__file__).parent
REPEATS = 5


def count_source(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Sizes of all Python files below a folder, and class names that occur more than once."""
    paths = sorted(folder.rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    sizes = {
        "lines": sum(text.count("\n") for text in texts),
        "files": len(paths),
        "functions": sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in nodes),
        "classes": sum(classes.values()),
    }
    return sizes, sorted(name for name, count in classes.items() if count > 1)


def passed_by_training(graph: str, out: Path) -> tuple[set[str], set[tuple[str, int]]]:
    """Files and functions of the package that a short training calls, import time left aside."""
    from aspect.cli.main import main

    files: set[str] = set()
    functions: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Modules and bodies of classes, which run when they are imported, have other flags.
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE):
                files.add(str(path.relative_to(PACKAGE)))
                functions.add((code.co_filename, code.co_firstlineno))

    arguments = ["train", graph, "--set", "epochs=2", "--out", str(out), "--device", "cpu"]
    sys.argv = ["aspect", *arguments]
    sys.setprofile(note)
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.setprofile(None)
    return files, functions


def seconds_of(*command: str) -> float:
    """The shortest of several runs of a command."""

    def once() -> float:
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
        return time.perf_counter() - started

    return min(once() for _ in range(REPEATS))


def main() -> None:
    """Print it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph", nargs="?", default="cora", help="graph to train on")
    parser.add_argument("--list", action="store_true", help="name the files that are passed")
    chosen = parser.parse_args()

    sizes, twice = count_source(PACKAGE)
    for name, value in sizes.items():
        print(f"{name:34} {value:,}")
    print(f"{'class names used twice':34} {len(twice)} {' '.join(twice)}")
    start = seconds_of(sys.executable, "-c", "pass")
    importing = seconds_of(sys.executable, "-c", "import aspect")
    helping = seconds_of(sys.executable, "-m", "aspect", "--help")
    print(f"{'import aspect, seconds':34} {importing - start:.3f}")
    print(f"{'aspect --help, seconds':34} {helping:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        files, functions = passed_by_training(chosen.graph, Path(folder) / "run")
    print(f"{f'files passed by train {chosen.graph}':34} {len(files)}")
    print(f"{f'functions passed by train {chosen.graph}':34} {len(functions)}")
    for file in sorted(files) if chosen.list else ():
        print(f"  {file}")


if __name__ == "__main__":
    main()
