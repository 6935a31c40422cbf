"""Training of a timm model on batches that data-loader workers make: a program of several processes."""

import numpy as np
import timm
import torch

from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, marked


class Images(torch.utils.data.IterableDataset):
    """Endless random images (3, side, side), uint8, with labels."""

    def __init__(self, side: int):
        self._side = side

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        made = np.random.default_rng(worker.id if worker else 0)
        while True:
            image = made.integers(0, 256, (3, self._side, self._side), dtype=np.uint8)
            yield torch.from_numpy(image), int(made.integers(1000))


def training(setting: Setting):
    begin(setting)
    name, batch, side, workers = setting.size(("convnext_tiny", 64, 224, 4), ("test_resnet", 2, 64, 1))
    # Workers that start before the GPU is used need not inherit its state.
    batches = iter(
        torch.utils.data.DataLoader(Images(side), batch_size=batch, num_workers=workers, pin_memory=setting.gpu)
    )
    next(batches)
    model = timm.create_model(name, pretrained=False, num_classes=1000).train().to(setting.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        images, labels = next(batches)
        images = images.to(setting.device, non_blocking=True).float().div_(255)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(setting.device, dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels.to(setting.device, non_blocking=True))
        loss.backward()
        optimizer.step()

    return marked(setting, step)
