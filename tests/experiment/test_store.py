"""A bench's folder: records are written once, read in the plan's order, and damage is named."""

import json

import pytest

from aspect.errors import FileError, RunError
from aspect.experiment.store import BenchFolder, read_details, read_plan, read_records
from experiment.grids import cells_of, done, failed, make_details, make_plan


@pytest.fixture
def plan():
    return make_plan(seeds=2)


@pytest.fixture
def cells(plan):
    return cells_of(plan)


@pytest.fixture
def folder(tmp_path, plan, cells):
    with BenchFolder.open(tmp_path / "bench", plan) as opened:
        opened.expect(plan, cells)
        yield opened


def test_records_come_back_in_the_plans_order(folder, cells):
    for cell in reversed(cells):
        folder.write(done(cell))
    assert [record.cell for record in read_records(folder.path)] == cells
    folder.conclude()
    assert read_records(folder.path / "records.jsonl") == read_records(folder.path)


def test_a_record_that_is_done_is_never_changed(folder, cells):
    folder.write(done(cells[0], strict=50))
    (file,) = (folder.path / "cells").iterdir()
    before = file.stat(), file.read_bytes()
    folder.write(done(cells[0], strict=99))
    assert (file.stat(), file.read_bytes()) == before


def test_what_failed_gives_way_to_what_is_done(folder, cells):
    folder.write(failed(cells[0]))
    assert folder.failed(cells[0]).error == "It broke."
    folder.write(failed(cells[0], "Again."))
    assert [record.error for record in folder.records()] == ["Again."]
    folder.write(done(cells[0]))
    assert folder.failed(cells[0]) is None
    assert [record.status for record in folder.records()] == ["done"]


def test_a_plan_that_changed_leaves_old_records_unread(folder, plan, cells):
    for cell in cells:
        folder.write(done(cell))
    smaller = plan.model_copy(update={"seeds": 1})
    folder.expect(smaller, cells_of(smaller))
    assert {record.cell.spec.seed for record in folder.records()} == {0}
    assert len(list((folder.path / "cells").iterdir())) == len(cells), "nothing is thrown away"


def test_a_part_of_a_plan_leaves_the_rest_as_it_was(folder, plan, cells):
    part = [cell for cell in cells if cell.entry == "raw"]
    folder.expect(plan, part)
    assert folder.expected() == cells


def test_what_a_plan_no_longer_names_is_no_longer_expected(folder, plan):
    without = plan.only(entries=("raw",))
    folder.expect(without, cells_of(without))
    assert {cell.entry for cell in folder.expected()} == {"raw"}


def test_the_same_work_may_get_another_name(folder, plan, cells):
    folder.write(done(cells[0]), make_details(cells[0]))
    renamed = [cell.model_copy(update={"title": "New name"}) for cell in cells]
    folder.expect(plan, renamed)
    assert folder.records()[0].cell.title == "New name"
    assert read_details(folder.path)[0].title == "New name"


def test_details_are_read_beside_records(folder, cells):
    assert read_details(folder.path) == []
    folder.write(done(cells[0]), make_details(cells[0]))
    assert folder.has_details(cells[0])
    assert read_details(folder.path) == [make_details(cells[0])]


def test_details_without_a_record_are_not_read(folder, cells):
    folder.write(done(cells[0]), make_details(cells[0]))
    (folder.path / "cells" / f"{cells[0].key}.json").unlink()
    assert read_details(folder.path) == []


def test_the_log_has_a_line_per_event_and_nothing_that_moves_the_cursor(folder, cells):
    cell = cells[0].model_copy(update={"graph": "odd\x1b[31m\nname"})
    folder.log("started", cell)
    folder.log("failed", cell, "It broke.\nTraceback:\n  here\x07")
    lines = (folder.path / "log.txt").read_text().splitlines()
    assert len(lines) == 4
    assert f"started {cell.key} aspect on odd\\x1b[31m\\nname, seed 0" in lines[0]
    assert lines[1].endswith("It broke.")
    assert lines[3] == r"      here\x07"


def test_another_plan_is_refused(folder, plan):
    other = plan.model_copy(update={"name": "other"})
    with (
        pytest.raises(RunError, match="records of the plan 'toy', not of 'other'"),
        BenchFolder.open(folder.path, other),
    ):
        pass


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path, plan):
    (tmp_path / "photo.jpg").write_text("x")
    with (
        pytest.raises(RunError, match="not empty and not a bench's folder"),
        BenchFolder.open(tmp_path, plan),
    ):
        pass
    assert [item.name for item in tmp_path.iterdir()] == ["photo.jpg"]
    with (
        pytest.raises(FileError, match="must be a folder"),
        BenchFolder.open(tmp_path / "photo.jpg", plan),
    ):
        pass


def test_leftovers_of_a_kill_are_removed(tmp_path, plan):
    path = tmp_path / "again"
    with BenchFolder.open(path, plan):
        pass
    left = [path / part / ".0123456789abcdef.part" for part in ("cells", "perturbations")]
    for each in left:
        each.parent.mkdir(exist_ok=True)
        each.write_text("half")
    with BenchFolder.open(path, plan):
        assert not any(each.exists() for each in left)


def test_a_folder_that_was_claimed_by_halves_is_claimed_again(tmp_path, plan):
    path = tmp_path / "bench"
    with BenchFolder.open(path, plan):
        pass
    parts = ("details", "failed", "cells")  # made in the opposite order
    for count in range(1, 4):
        for name in parts[:count]:
            (path / name).rmdir()
        with BenchFolder.open(path, plan):
            assert all((path / name).is_dir() for name in parts)


def test_the_plan_comes_back_from_the_folder_as_it_was(tmp_path):
    plan = make_plan(
        entries=["aspect", {"name": "small", "method": "aspect", "set": {"width": 8}}],
        seeds_of={"mixed": 2},
        perturbations=["none", {"kind": "random", "budgets": [0.1, 0.2]}],
        details=["aspect"],
    )
    with BenchFolder.open(tmp_path / "bench", plan):
        pass
    assert read_plan(tmp_path / "bench") == plan


def test_a_bench_is_read_without_the_files_that_it_was_made_from(tmp_path, monkeypatch):
    """A report is drawn anywhere, long after the searches and graphs of the plan have moved."""
    path = tmp_path / "bench"
    plan = make_plan(searches="searches", graphs=[str(tmp_path / "gone.npz")])
    with BenchFolder.open(path, plan):
        pass
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_plan(path) == plan
    with BenchFolder.open(path, plan):  # its name is compared with that of the kept plan
        pass


@pytest.mark.parametrize("content", ["", '{"status": "done"}'])
def test_a_damaged_record_is_named(folder, cells, content):
    folder.write(done(cells[0]))
    (file,) = (folder.path / "cells").iterdir()
    file.write_text(content)
    with pytest.raises(RunError, match=rf"{cells[0].key}.json is damaged .* Remove it"):
        read_records(folder.path)


def test_a_record_of_other_work_is_not_taken_for_a_cells_own(folder, cells):
    folder.write(done(cells[0]))
    (file,) = (folder.path / "cells").iterdir()
    file.rename(file.with_name(f"{cells[1].key}.json"))
    with pytest.raises(RunError, match=rf"holds the record of another run, {cells[0].key}"):
        read_records(folder.path)


def test_a_damaged_index_says_what_to_do(folder, plan, cells):
    index = folder.path / "index.jsonl"
    index.write_text(index.read_text() + "garbage\n")
    with pytest.raises(RunError, match=r"line \d+ is damaged .* Remove the file and run the bench"):
        folder.expect(plan, cells)
    index.unlink()
    folder.expect(plan, cells)
    assert folder.expected() == cells


def test_a_newer_format_is_refused(folder, cells):
    folder.write(done(cells[0]))
    (file,) = (folder.path / "cells").iterdir()
    file.write_text(json.dumps({"format": 99, "new": "field"}))
    with pytest.raises(RunError, match=r"format 99, newer than this version reads \(2\)"):
        read_records(folder.path)


def test_what_holds_no_records_is_refused(tmp_path):
    with pytest.raises(RunError, match="not a bench's folder"):
        read_records(tmp_path)
    with pytest.raises(FileError, match=r"folder or a \.jsonl file"):
        read_records(tmp_path / "records.csv")
    with pytest.raises(RunError, match="no such file"):
        read_records(tmp_path / "records.jsonl")
    with pytest.raises(RunError, match="not a bench's folder"):
        read_details(tmp_path / "none")


def test_records_of_version_0_2_are_read_as_they_were_written(folder, cells):
    record = done(cells[0]).model_copy(update={"format": 1})
    file = folder.path / "cells" / f"{cells[0].key}.json"
    file.write_text(record.model_dump_json(indent=1) + "\n")
    assert read_records(folder.path) == [record]
