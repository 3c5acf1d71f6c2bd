"""Write the SHA-256 of every method's module: what the key of a spec calls the released source.

Run it when a version is released, after the last change to a method:

    python benchmarks/released.py
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from aspect.experiment.spec import RELEASED
from aspect.methods.registry import find_method, method_names
from aspect.workspace import write_json


def main() -> None:
    """Write the file."""
    modules = sorted({find_method(name).method.__module__ for name in method_names()})
    files = {name: Path(str(sys.modules[name].__file__)) for name in modules}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    write_json(RELEASED, digests)
    print(f"Wrote the digests of {len(digests)} modules to {RELEASED}.")


if __name__ == "__main__":
    main()
