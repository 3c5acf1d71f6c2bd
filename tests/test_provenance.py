"""What is said of a model beside its numbers."""

from aspect.data.synthetic import mixed_graph
from aspect.estimator import Embedder
from aspect.experiment.model_facts import faults_of


def test_a_training_that_came_to_nothing_is_told():
    graph = mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0).graph
    for rate, is_wild in ((1e3, True), (1e-3, False)):
        model = Embedder("dgi", device="cpu", epochs=9, patience=4, width=8, learning_rate=rate)
        faults = faults_of(model, graph, model.fit(graph).health(graph))
        assert any("those from before the training" in fault for fault in faults) == is_wild
