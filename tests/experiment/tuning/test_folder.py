"""A search's folder belongs to one search and to one process."""

import errno

import filelock
import pytest

from aspect.data.synthetic import mixed_graph
from aspect.errors import FileError, RunError
from aspect.experiment.tuning.folder import SearchFolder
from experiment.tuning.searches import InThisProcess, search_for, small_search, write_graph

pytestmark = pytest.mark.usefixtures("quick_probe")


def test_another_search_is_refused_by_what_differs(path, out, tmp_path):
    search = small_search(path)
    search_for(search, out, 1)
    before = {item.name: item.read_bytes() for item in out.iterdir()}
    other = write_graph(tmp_path, "other.npz", mixed_graph(num_nodes=60, num_features=8, seed=9))
    differing = {
        "graph": small_search(other),
        "method": small_search(path, method="low"),
        "splits": small_search(path, splits="random"),
        "seeds": small_search(path, seeds=2),
        "max_cosine": small_search(path, max_cosine=0.5),
        "setting temperature": small_search(path, {"temperature": 0.9}),
        "fixed": small_search(path, fixed=["width"]),
        "max_epochs": small_search(path, max_epochs=9),
    }
    for name, each in differing.items():
        with pytest.raises(RunError, match=rf"holds another search, with {name} .*--overwrite"):
            search_for(each, out, 1)
    assert {item.name: item.read_bytes() for item in out.iterdir()} == before
    replaced = search_for(differing["seeds"], out, 1, overwrite=True)
    assert replaced.before == 0
    assert replaced.search.seeds == (0, 1)


def test_the_same_asked_in_other_words_is_the_same(path, out):
    search = small_search(path)
    search_for(search, out, 1)
    reworded = search.model_copy(update={"settings_from": "elsewhere"})
    assert search_for(reworded, out, 1).before == 1


def test_a_disk_that_is_full_is_said_in_a_sentence(path, out):
    class Full(InThisProcess):
        def run(self, _work, _tasks):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FileError, match=r"Cannot write to .*: the disk is full\."):
        search_for(small_search(path), out, 1, executor=Full())


def test_a_graph_that_changed_is_another_search(path, out):
    search_for(small_search(path), out, 1)
    path.unlink()
    write_graph(path.parent, path.name, mixed_graph(num_nodes=60, num_features=8, seed=9))
    with pytest.raises(RunError, match="holds another search, with graph_sha256"):
        search_for(small_search(path), out, 1)


def test_a_folder_of_another_kind_is_left_alone(path, out):
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="holds no search"):
        search_for(small_search(path), out, 1, overwrite=True)
    assert [item.name for item in out.iterdir()] == ["thesis.txt"]
    with pytest.raises(FileError, match="must be a folder"):
        search_for(small_search(path), out / "thesis.txt", 1)


def test_two_processes_do_not_share_a_search(path, out):
    search = small_search(path)
    with (
        SearchFolder.open(out, search),
        pytest.raises(RunError, match="Another process is using"),
    ):
        search_for(search, out, 1)
    assert search_for(search, out, 1).before == 0
    with filelock.FileLock(out / ".lock"), pytest.raises(RunError, match="Another process"):
        search_for(search, out, 1)


@pytest.mark.parametrize("content", [b"not json\nnot json\n", b'{"op_code": 4}\n{}\n'])
def test_a_damaged_journal_is_refused(path, out, content):
    search = small_search(path)
    search_for(search, out, 1)
    (out / "study.journal").write_bytes(content)
    with pytest.raises(RunError, match=r"study.journal is damaged .*--overwrite"):
        search_for(search, out, 1)


def test_a_damaged_request_is_refused(path, out):
    search = small_search(path)
    search_for(search, out, 1)
    (out / "search.yaml").write_text("method: 3\n")
    with pytest.raises(RunError, match=r"search.yaml does not tell what was asked\. .*--overwrite"):
        search_for(search, out, 1)
