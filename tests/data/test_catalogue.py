"""The catalogue answers without the heavy packages, and offers the nearest name."""

import re
import subprocess
import sys

import pytest

from aspect.data.catalogue import DATASETS, dataset
from aspect.errors import UnknownNameError


def test_every_entry_is_complete():
    assert len(DATASETS) == 15
    for name, entry in DATASETS.items():
        assert entry.name == name
        assert re.fullmatch("[0-9a-f]{64}", entry.file_sha256)
        assert re.fullmatch("[0-9a-f]{64}", entry.content_sha256)
        assert min(entry.num_nodes, entry.num_edges, entry.num_features, entry.num_classes) > 0
        assert entry.source
        assert entry.licence
        assert entry.note
    assert len({entry.file_sha256 for entry in DATASETS.values()}) == len(DATASETS)
    assert len({entry.content_sha256 for entry in DATASETS.values()}) == len(DATASETS)


def test_pyg_gives_the_old_cornell_and_not_the_corrected_one():
    assert DATASETS["cornell_old"].pyg == ("WebKB", "Cornell")
    assert DATASETS["cornell"].pyg is None
    assert "cornell_old" in DATASETS["cornell"].note


def test_unknown_name_offers_the_nearest():
    with pytest.raises(UnknownNameError, match=r"Unknown data set 'corra'\. Did you mean 'cora'\?"):
        dataset("corra")


def test_no_heavy_package_is_imported():
    code = (
        "import sys; from aspect.data.catalogue import dataset\n"
        "try: dataset('corra')\n"
        "except KeyError as error: print(error)\n"
        "assert not {'torch', 'numpy', 'pyarrow'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Did you mean 'cora'?" in done.stdout
