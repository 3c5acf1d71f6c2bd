"""Methods for a user's script: fit, embed, policy, save, load; also in scikit-learn."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.estimator.aspect import Aspect
    from aspect.estimator.embedder import Embedder
    from aspect.estimator.model import DTYPE, choose_device, settings_for

__all__ = ["DTYPE", "Aspect", "Embedder", "choose_device", "settings_for"]

__getattr__, __dir__ = exporting(__name__, __file__)
