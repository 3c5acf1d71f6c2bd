"""The data sets that have a name: what each must hold, where it comes from, what to beware of.

Nothing heavy is imported here, so that the command line can answer a wrong name at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aspect.errors import UnknownNameError

__all__ = ["DATASETS", "Dataset", "dataset"]


@dataclass(frozen=True)
class Dataset:
    """What is known of a data set before it is read."""

    name: str
    num_nodes: int
    num_edges: int  # undirected, without self-loops, each counted once
    num_features: int
    num_classes: int
    num_splits: int  # published ones
    file_sha256: str  # of the .npz file
    content_sha256: str  # of the graph in it, see `aspect.data.npz.content_sha256`
    source: str
    licence: str
    note: str
    # Class and name in torch_geometric.datasets; None where PyG has no equal graph.
    pyg: tuple[str, str | None] | None = None


_ALL = (
    Dataset(
        name="cora",
        num_nodes=2_708,
        num_edges=5_278,
        num_features=1_433,
        num_classes=7,
        num_splits=10,
        file_sha256="c602b03e6924260492197d218555f5bb0eb28b1c075cae79902787ae3e6a3003",
        content_sha256="5e9975699683654edf93d439bf8db17591f851a45f2e9b4258bfd65ac8893858",
        source="Planetoid: Yang et al., ICML 2016; splits: Geom-GCN, Pei et al., ICLR 2020",
        licence="MIT; the splits state none",
        note="The published splits cover the largest component alone; 223 nodes are in no mask.",
        pyg=("Planetoid", "Cora"),
    ),
    Dataset(
        name="citeseer",
        num_nodes=3_327,
        num_edges=4_552,
        num_features=3_703,
        num_classes=6,
        num_splits=10,
        file_sha256="4c6339722c1ea7c29cc2a330179c09ab2fd62bb8a28ebad9a25033a5f26a72d2",
        content_sha256="95c799631ca8545c6f556d65b4600f2e55a147a729aef0f0ec29f188c89eca81",
        source="Planetoid: Yang et al., ICML 2016; splits: Geom-GCN, Pei et al., ICLR 2020",
        licence="MIT; the splits state none",
        note=(
            "15 test nodes have no features and a guessed label; splits 4 and 5 cover the "
            "largest component alone."
        ),
        pyg=("Planetoid", "CiteSeer"),
    ),
    Dataset(
        name="pubmed",
        num_nodes=19_717,
        num_edges=44_324,
        num_features=500,
        num_classes=3,
        num_splits=10,
        file_sha256="d7ae56d457b09f0a2a8425cc017a833205d193f5aeb9df5a8dc01096268aad85",
        content_sha256="9a2dde9ba9d720e91aac0623c7466c857a4850099dacbf5517df2e28f8e96b99",
        source="Planetoid: Yang et al., ICML 2016; splits: Geom-GCN, Pei et al., ICLR 2020",
        licence="MIT; the splits state none",
        note="Features are TF-IDF weights, not 0 and 1.",
        pyg=("Planetoid", "PubMed"),
    ),
    Dataset(
        name="cornell",
        num_nodes=183,
        num_edges=277,
        num_features=1_703,
        num_classes=5,
        num_splits=10,
        file_sha256="fbbff18685ec77940cd281eac6ee69ac14d33fe2b513cbcbb181459196802bd8",
        content_sha256="7d26322a4c79ff32f006e8fb8936a174c65d041b939c6342753e67b6bd246f9b",
        source="Geom-GCN as corrected in July 2022",
        licence="none stated",
        note=(
            "The corrected graph. Older copies, PyG's WebKB among them, carry Texas's "
            "features and labels: see cornell_old."
        ),
        pyg=None,
    ),
    Dataset(
        name="cornell_old",
        num_nodes=183,
        num_edges=277,
        num_features=1_703,
        num_classes=5,
        num_splits=10,
        file_sha256="bcdc8ae1ab178b2a5b7353cfead9e129cc3f5e1d45d8f3bd6fc747733dc8c982",
        content_sha256="b6a4fec74a581f30fd3919dd2b55b7f45001dba83cd215b5fdf83dde776618bc",
        source="Geom-GCN: Pei et al., ICLR 2020",
        licence="none stated",
        note=(
            "Faulty: Cornell's edges with the features and labels of Texas; only to "
            "compare with results on it."
        ),
        pyg=("WebKB", "Cornell"),
    ),
    Dataset(
        name="texas",
        num_nodes=183,
        num_edges=279,
        num_features=1_703,
        num_classes=5,
        num_splits=10,
        file_sha256="32b38516410cda432469848bbf994336e2a5e2ad251ead028f83e93a67125594",
        content_sha256="cef462be3ec20130b64e2776c56f0c20712f171bd33416123fb2630e16e24fe7",
        source="Geom-GCN: Pei et al., ICLR 2020",
        licence="none stated",
        note="183 nodes: one test node is almost 3 points; class 1 has a single node.",
        pyg=("WebKB", "Texas"),
    ),
    Dataset(
        name="wisconsin",
        num_nodes=251,
        num_edges=450,
        num_features=1_703,
        num_classes=5,
        num_splits=10,
        file_sha256="4e0869a0ccf1f89b5ba6f75b64be1882c635e0cf31fee226a56113c418aa8fd0",
        content_sha256="783cf448c4a8820fec52b9d816011723e4b735a7a5edc029df9c0881851faf4c",
        source="Geom-GCN: Pei et al., ICLR 2020",
        licence="none stated",
        note="251 nodes: one test node is 2 points.",
        pyg=("WebKB", "Wisconsin"),
    ),
    Dataset(
        name="actor",
        num_nodes=7_600,
        num_edges=26_659,
        num_features=932,
        num_classes=5,
        num_splits=10,
        file_sha256="95e49d4b327bc3c18d0be463c356ac56c2097e653f2fa9aeb39729c71d73cfc6",
        content_sha256="f06c4a14417b17c0951049a2709a63f83d0000b41e1779364b5575ac4dc54049",
        source="Geom-GCN: Pei et al., ICLR 2020 (film)",
        licence="none stated",
        note="Actors who appear on one Wikipedia page; classes are kinds of actors.",
        pyg=("Actor", None),
    ),
    Dataset(
        name="chameleon",
        num_nodes=2_277,
        num_edges=31_371,
        num_features=2_325,
        num_classes=5,
        num_splits=10,
        file_sha256="0e004d46a7f08edf9c9ffbaa03eab13c78598e0f9ceb6ce83e02ca99228be391",
        content_sha256="02ec412999eee08fe29dacc9df729b587e6b16dcb71f1b425e9810d9b855f354",
        source=(
            "Wikipedia: Rozemberczki et al., 2021, in the form of Geom-GCN, Pei et al., ICLR 2020"
        ),
        licence="MIT (features, labels); edges and splits state none",
        note=(
            "1,830 of 2,277 nodes have a twin, so test nodes leak into training: report "
            "chameleon_filtered as well."
        ),
        pyg=("WikipediaNetwork", "chameleon"),
    ),
    Dataset(
        name="squirrel",
        num_nodes=5_201,
        num_edges=198_353,
        num_features=2_089,
        num_classes=5,
        num_splits=10,
        file_sha256="bc97d8bb5f3258e42ddf03b5db9ed4a252013f084abbb346b893eb35b1efc106",
        content_sha256="90168ef7993f448c070f9b868c4947cb4d3a4c58f1d039f0e4b3fc5cf47828b6",
        source=(
            "Wikipedia: Rozemberczki et al., 2021, in the form of Geom-GCN, Pei et al., ICLR 2020"
        ),
        licence="MIT (features, labels); edges and splits state none",
        note=(
            "4,134 of 5,201 nodes have a twin, so test nodes leak into training: report "
            "squirrel_filtered as well."
        ),
        pyg=("WikipediaNetwork", "squirrel"),
    ),
    Dataset(
        name="chameleon_filtered",
        num_nodes=890,
        num_edges=8_854,
        num_features=2_325,
        num_classes=5,
        num_splits=10,
        file_sha256="54be6a9e8d0952b3487c0b59b9ea634f234252fd07790e89c6cf77a607216526",
        content_sha256="6801f6050cb6bea41227eacf2a64a03d1437df15808815f700556bf9a8ba0348",
        source="Platonov et al., ICLR 2023",
        licence="MIT",
        note="chameleon without its duplicate nodes, with splits of its own.",
        pyg=None,
    ),
    Dataset(
        name="squirrel_filtered",
        num_nodes=2_223,
        num_edges=46_998,
        num_features=2_089,
        num_classes=5,
        num_splits=10,
        file_sha256="02adf47c19db27fe554dd61bb7b14b92f9b978b6df4208063279db592f04e942",
        content_sha256="2e2cf60b6104eb5854761564f9418e3ad89cec480110c570e01d349d7d1f0fa0",
        source="Platonov et al., ICLR 2023",
        licence="MIT",
        note="squirrel without its duplicate nodes, with splits of its own.",
        pyg=None,
    ),
    Dataset(
        name="minesweeper",
        num_nodes=10_000,
        num_edges=39_402,
        num_features=7,
        num_classes=2,
        num_splits=10,
        file_sha256="e56bc108772ab52f1161095dbd1594db19046f416d1b1d150972c3110e7c766b",
        content_sha256="2747a6843f71f277bef3b6f9eebf288981671ae27757328afe91783b117b9333",
        source="Platonov et al., ICLR 2023",
        licence="MIT",
        note="Two classes of unequal size (8,000 and 2,000): its authors report ROC AUC.",
        pyg=("HeterophilousGraphDataset", "Minesweeper"),
    ),
    Dataset(
        name="tolokers",
        num_nodes=11_758,
        num_edges=519_000,
        num_features=10,
        num_classes=2,
        num_splits=10,
        file_sha256="470a9356d9f851777f54ee749d587e37fbf2d55edc999e7d1dcdaaa2ffbb029a",
        content_sha256="5a605e67c29596581c7e654d688335ab2902aa050331166d0e089f1b34eed312",
        source="Platonov et al., ICLR 2023",
        licence="MIT",
        note="Two classes of unequal size (9,192 and 2,566): its authors report ROC AUC.",
        pyg=("HeterophilousGraphDataset", "Tolokers"),
    ),
    Dataset(
        name="amazon_photo",
        num_nodes=7_650,
        num_edges=119_081,
        num_features=745,
        num_classes=8,
        num_splits=0,
        file_sha256="53430ff37c78bf708130f6ffd09bc73e213268619b703ee84ad4631c495d28bf",
        content_sha256="4b4ec787dc68b25974bc74be51b10700b3e1ee3915e5e9994672736334f3da19",
        source="Shchur et al., 2018",
        licence="MIT",
        note="No published split; 115 nodes have no edge to another node.",
        pyg=("Amazon", "Photo"),
    ),
)

DATASETS: Mapping[str, Dataset] = MappingProxyType({entry.name: entry for entry in _ALL})


def dataset(name: str) -> Dataset:
    """The entry of that name; an unknown name is answered with the nearest one."""
    if name not in DATASETS:
        raise UnknownNameError("data set", name, DATASETS)
    return DATASETS[name]
