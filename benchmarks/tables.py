"""Make the tables of `results/`, of the README and of `docs/`, or check that they are up to date.

Tables of results come from the records, that of methods from the registry. Run by `make tables`.
With `--check` nothing is written: it says which files differ and fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from aspect.errors import AspectError  # noqa: E402 - the path comes first
from aspect.report.generated import (  # noqa: E402
    differing,
    expected_docs,
    expected_results,
    record_files,
    write_differing,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 where a file differs, 2 where records or README are at fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="folder with results/, docs/ and README.md"
    )
    given = parser.parse_args(arguments)
    try:
        return _check(given.root) if given.check else _write(given.root)
    except AspectError as error:
        print(error, file=sys.stderr)
        return 2


def _check(root: Path) -> int:
    old, stale = differing(expected_results(root)), differing(expected_docs(root))
    for path in old:
        print(f"{path.relative_to(root)} is not what the records say. Run: make tables")
    for path in stale:
        print(f"{path.relative_to(root)} is not what the registry says. Run: make tables")
    if not old and not stale:
        print(f"The tables are what the records say ({_kinds(root)}).")
    return 1 if old or stale else 0


def _write(root: Path) -> int:
    changed = write_differing({**expected_results(root), **expected_docs(root)})
    for path in changed:
        print(f"{'Wrote' if path.exists() else 'Removed'} {path.relative_to(root)}.")
    if not changed:
        print(f"Nothing changed ({_kinds(root)}).")
    return 0


def _kinds(root: Path) -> str:
    return ", ".join(record_files(root)) or "there are no records"


if __name__ == "__main__":
    sys.exit(main())
