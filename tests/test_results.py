"""What the repository reports follows from the records that it holds."""

import hashlib
import json
from pathlib import Path

from aspect.experiment.record import FORMAT
from aspect.experiment.store import read_records
from scripts import load_script

ROOT = Path(__file__).parent.parent
tables = load_script("tables")
FILES = sorted((ROOT / "results" / "records").glob("*.jsonl"))


def test_tables_and_readme_are_what_the_records_say():
    """A block of the README without records is refused; one that is out of date differs."""
    old = [str(path.relative_to(ROOT)) for path in tables.differing(tables.expected_results(ROOT))]
    assert not old, f"{', '.join(old)} differ from the records. Run: make tables"


def test_every_file_of_records_has_its_tables():
    assert sorted(tables.record_files(ROOT).values()) == FILES


def test_records_are_done_and_each_work_comes_once():
    for path in FILES:
        records = read_records(path)
        assert records, f"{path.name} must not be empty"
        for record in records:
            cell = record.cell
            assert record.format in (1, FORMAT)
            assert record.status == "done", f"{cell.entry} on {cell.graph} failed"
            assert cell.plan == path.stem
            assert tuple(score.split for score in record.scores) == cell.spec.split_numbers
        assert len({record.key for record in records}) == len(records)


def test_keys_are_the_hash_of_the_work_as_it_was_written():
    """Else a bench would not know its own records again, and do their work once more."""
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for line, record in zip(lines, read_records(path), strict=True):
            written = json.dumps(
                json.loads(line)["cell"]["work"], sort_keys=True, ensure_ascii=False
            )
            assert hashlib.sha256(written.encode()).hexdigest()[:20] == record.key
