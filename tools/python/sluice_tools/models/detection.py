"""The variant of a detection model that takes its input at the size it has."""

import copy
from typing import Any

from torch import Tensor, nn
from torchvision.models.detection.transform import GeneralizedRCNNTransform


class FixedSizeTransform(GeneralizedRCNNTransform):
    """torchvision's transform without its resizing, which would shrink 1440x2560 to 750x1333.
    Normalisation stays, and so does padding to the multiple that the model's strides need."""

    def resize(self, image: Tensor, target: dict[str, Tensor] | None = None) -> tuple[Tensor, dict[str, Tensor] | None]:
        return image, target


def without_resizing(model: nn.Module) -> nn.Module:
    """A model that shares the weights of `model`."""
    own: Any = model.transform  # torch has no types for the attributes of a module
    fixed = copy.copy(model)
    # copy.copy shares this dictionary: writing to it would change `model` too.
    fixed._modules = dict(model._modules)
    fixed.transform = FixedSizeTransform(
        own.min_size,
        own.max_size,
        own.image_mean,
        own.image_std,
        size_divisible=own.size_divisible,
        fixed_size=own.fixed_size,
    ).eval()
    return fixed
