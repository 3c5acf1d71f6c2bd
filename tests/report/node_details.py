"""Details of a model made by hand, so that every node of the page is known."""

import numpy as np

from aspect.evaluation.details import Attacked, Details, Sensitivity, SpectrumShares

NASTY = "</script><img src=x onerror=\"document.title='broken'\">"


def make_details(nodes=24, **changes):
    """A ring: node k has the gate k / nodes, two neighbours, and one of three classes."""
    each = np.arange(nodes)
    gate = tuple((each / nodes).tolist())
    homophily = tuple(None if node == 0 else float(node % 2) for node in range(nodes))
    content = {
        "method": "aspect",
        "title": "ASPECT",
        "graph": "ring",
        "seed": 0,
        "num_nodes": nodes,
        "nodes": tuple(range(nodes)),
        "ids": tuple(f"paper-{node}" for node in range(nodes)),
        "class_names": ("Theory", "Practice", "Neither"),
        "labels": tuple((each % 3).tolist()),
        "degrees": (2,) * nodes,
        "neighbours": tuple(((node - 1) % nodes, (node + 1) % nodes) for node in range(nodes)),
        "homophily": homophily,
        "gate": gate,
        "losses": {
            "low": tuple((2 - each / nodes).tolist()),
            "high": tuple((1 + each / nodes).tolist()),
        },
        "cost_gap": tuple((2 * each / nodes - 1).tolist()),
        "sensitivity": Sensitivity(
            flips=4,
            moves=6,
            distances={
                "low": tuple((1 - each / nodes).tolist()),
                "high": tuple((0.5 + each / nodes).tolist()),
            },
        ),
        "map_x": tuple(_unit(np.cos(2 * np.pi * each / nodes))),
        "map_y": tuple(_unit(np.sin(2 * np.pi * each / nodes))),
        "map_name": "t-SNE",
        "spectrum": SpectrumShares(
            edges=(0.0, 1.0, 2.0),
            shares=(0.5, 0.5),
            is_exact=True,
            frequencies=(0.0, 1.0, 2.0),
            responses={"low": (1.0, 0.5, 0.0), "high": (0.0, 0.5, 1.0)},
        ),
        "curves": {
            "loss": (3.0, 2.0, 1.5),
            "contrast": (3.0, 2.0, 1.5),
            "gate_mean": (0.5, 0.5, 0.5),
            "gate_std": (0.0, 0.1, 0.2),
            "stability": (None, 4.0, 3.5),
            "search_before": (None, 4.0, 3.5),
            "search_after": (None, 6.0, 5.0),
            "sensitivity_low": (None, 0.5, 0.25),
            "sensitivity_high": (None, 1.0, 0.75),
            "rayleigh_low": (None, 0.5, 0.25),
            "rayleigh_low_changed": (None, 0.75, 0.5),
            "rayleigh_high": (None, 1.5, 1.75),
            "rayleigh_high_changed": (None, 1.25, 1.5),
        },
        "attacked": (Attacked(label="random 10%", gate=gate[::-1], homophily=homophily),),
    }
    return Details(**{**content, **changes})


def plain_details(nodes=12, **changes):
    """A model without bands, on a graph without labels and names."""
    bare = {
        "method": "raw",
        "title": "Raw features",
        "graph": "bare",
        "ids": None,
        "class_names": (),
        "labels": (),
        "homophily": (),
        "gate": None,
        "losses": {},
        "cost_gap": None,
        "sensitivity": None,
        "spectrum": None,
        "curves": {},
        "attacked": (),
    }
    return make_details(nodes, **{**bare, **changes})


def _unit(values):
    return np.round((values + 1) / 2, 4).tolist()
