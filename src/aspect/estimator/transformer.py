"""The contract of scikit-learn: parameters, clones, pickles, rows of a node table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from aspect.config import default_of
from aspect.data.convert import node_numbers
from aspect.errors import AspectError, SettingsError
from aspect.estimator.model import GraphModel, column_names

if TYPE_CHECKING:
    import pandas as pd

CACHES = ("_copies", "_outputs", "_read", "_unmeasured")


class Transformer(GraphModel):
    """A model by the contract of scikit-learn: parameters, clones, pickles, rows of a table."""

    def transform(self, graph: Any = None) -> NDArray[np.float32] | pd.DataFrame:  # noqa: ANN401
        """Embeddings as an array: of a graph's nodes, or of the nodes that a table's rows name.

        Args:
            graph: Any form of a graph. With a graph given at construction: rows of its node table.
                They name nodes by a column `id`, `node` or `node_id`, else by the index of a pandas
                frame, or as an array of ids; None stands for all nodes.
        """
        given = self._graph_of(graph)
        rows: NDArray[np.int64] | slice = slice(None)
        if self.graph is not None and graph is not None:
            rows = node_numbers(graph, given)
        if self._container == "pandas":
            frame = self.embed(given, as_frame=True).iloc[rows]
            # As scikit-learn's own transformers: rows keep the names that they came with.
            return frame if isinstance(rows, slice) else frame.set_axis(_index_of(graph, frame))
        return np.asarray(self.embed(given).numpy()[rows])

    def fit_transform(
        self,
        graph: Any = None,  # noqa: ANN401 - as for `transform`
        y: object = None,
    ) -> NDArray[np.float32] | pd.DataFrame:
        """Train and embed: `fit`, then `transform`."""
        graph = self._graph_of(graph) if self.graph is None else graph  # converted once
        return self.fit(graph, y).transform(graph)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's
        """All arguments of the constructor, those that were left out with their defaults."""
        fields = self.registration.config.model_fields
        defaults = {name: default_of(field) for name, field in fields.items()}
        return {**self._arguments, "graph": self.graph, **defaults, **self._settings}

    def set_params(self, **params: Any) -> Self:  # noqa: ANN401 - arguments of the constructor
        """Change arguments of the constructor; a fitted model is forgotten, since it had others."""
        if params:
            before = {**self._arguments, "graph": self.graph, **self._settings}
            vars(self).update(vars(self._made_with({**before, **params})))
        return self

    def _made_with(self, arguments: dict[str, Any]) -> Self:
        """An unfitted one; it shares a graph that both have, which was converted once."""
        if arguments["graph"] is not self.graph:
            made = type(self)(**arguments)
        else:
            made = type(self)(**{**arguments, "graph": None})
            made.graph, made._read, made._told = self.graph, self._read, self._told
        return made.set_output(transform=self._container)

    def set_output(self, *, transform: str | None = None) -> Self:
        """What `transform` returns: `default` (an array) or `pandas`; None changes nothing."""
        if transform not in (None, "default", "pandas"):
            raise SettingsError(f"The output must be default or pandas. Got {transform!r}.")
        self._container = transform or self._container
        return self

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:  # noqa: ARG002
        """The names of the embedding's columns: `z0`, `z1`, ..."""
        self.method.eval()  # refuses if nothing is fitted
        scaling = self._measured_scaling()
        if scaling is None:
            raise AspectError("The training is not complete: no embedding was measured yet.")
        return np.array(column_names(len(scaling.mean)), dtype=object)

    def __sklearn_clone__(self) -> Self:
        """An unfitted one with the same arguments; the graph is shared, not copied."""
        return self._made_with({**self._arguments, "graph": self.graph, **self._settings})

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted

    def __sklearn_tags__(self) -> object:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(one_d_array=True, string=True),
        )

    def __getstate__(self) -> dict[str, Any]:
        """For pickles, as joblib's workers need: weights in place of the module and its caches."""
        self._measured_scaling()
        state = {name: value for name, value in vars(self).items() if name not in CACHES}
        state["_method"] = None if self._method is None else self._method.state_dict()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        weights = state.pop("_method")
        vars(self).update(state, _method=None, _read=None, _unmeasured=None)
        self._forget_outputs()
        if weights is not None:
            self._method = self._build(self._columns)
            self._method.load_state_dict(weights)


def _index_of(rows: object, frame: pd.DataFrame) -> pd.Index[Any]:
    import pandas as pd

    return rows.index if isinstance(rows, pd.DataFrame | pd.Series) else frame.index
