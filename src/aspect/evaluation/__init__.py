"""What embeddings are worth, measured by labels that no method has seen."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.attacks.purification import edge_support, prune_edges
    from aspect.evaluation.baselines import knn_probe, majority_probe, twin_probe
    from aspect.evaluation.inspection import ValueRecorder, inspect_model
    from aspect.evaluation.linear_probe import evasion_probe, probe_named
    from aspect.evaluation.metrics import Summary, accuracy, macro_f1, roc_auc
    from aspect.evaluation.neutral_probe import NeutralProbe
    from aspect.evaluation.paper_probe import PaperProbe
    from aspect.evaluation.result import ProbeResult, SplitScore
    from aspect.evaluation.significance import PairedTest, holm, paired_test
    from aspect.evaluation.stability import StabilityResult, study_stability

__all__ = [
    "NeutralProbe",
    "PairedTest",
    "PaperProbe",
    "ProbeResult",
    "SplitScore",
    "StabilityResult",
    "Summary",
    "ValueRecorder",
    "accuracy",
    "edge_support",
    "evasion_probe",
    "holm",
    "inspect_model",
    "knn_probe",
    "macro_f1",
    "majority_probe",
    "paired_test",
    "probe_named",
    "prune_edges",
    "roc_auc",
    "study_stability",
    "twin_probe",
]

__getattr__, __dir__ = exporting(__name__, __file__)
