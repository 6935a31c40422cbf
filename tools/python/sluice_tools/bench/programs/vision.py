"""torchvision's models: random weights, seed 0, PyTorch's defaults where nothing else is said."""

import warnings

import torch
import torchvision

from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, by_graph, captured, marked, on_host, to_host
from sluice_tools.models.detection import without_resizing


def _images(setting: Setting, batch: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """INPUTS batches of shape (batch, 3, side, side) on the host."""
    batch, side = setting.size((batch, 224), (2, 32))
    return [on_host(setting, torch.rand(batch, 3, side, side).to(dtype)) for _ in range(INPUTS)]


@torch.inference_mode()
def vit_graph(setting: Setting):
    half = begin(setting)
    with torch.device(setting.device):
        if setting.tiny:
            model = torchvision.models.VisionTransformer(32, 16, 1, 2, 32, 64)
        else:
            model = torchvision.models.vit_b_16(weights=None)
    model.heads = torch.nn.Identity()  # torchvision's begins with zeros, and all outputs would be equal
    model = model.eval().to(half)
    return by_graph(setting, model, _images(setting, 8, half))


def resnet50(setting: Setting):
    begin(setting)
    with torch.device(setting.device):
        model = torchvision.models.get_model(setting.size("resnet50", "resnet18"), weights=None).eval()
    images = _images(setting, 4, torch.float32)

    @torch.inference_mode()
    def request(index: int):
        return to_host(model(images[index].to(setting.device, non_blocking=True)))

    return request


def resnet50_graph(setting: Setting):
    half = begin(setting)
    with torch.device(setting.device):
        model = torchvision.models.get_model(setting.size("resnet50", "resnet18"), weights=None).eval().to(half)
    return by_graph(setting, model, [image.to(setting.device) for image in _images(setting, 1, half)])


def _resnet152(setting: Setting):
    half = begin(setting)
    with torch.device(setting.device):
        model = torchvision.models.get_model(setting.size("resnet152", "resnet18"), weights=None).eval().to(half)
    images = _images(setting, 256, half)[0].to(setting.device)

    @torch.inference_mode()
    def compute():
        return model(images)

    return compute


def resnet152_batch(setting: Setting):
    return marked(setting, _resnet152(setting))


def resnet152_graph(setting: Setting):
    compute = _resnet152(setting)
    if not setting.gpu:
        return marked(setting, compute)
    graph, output = captured(compute)

    return marked(setting, lambda: (graph.replay(), output))  # the graph fills the output, so it is kept


def fasterrcnn(setting: Setting):
    begin(setting)
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls TorchScript deprecated, once per call
        script = torch.jit.freeze(torch.jit.script(without_resizing(model)).to(setting.device))
    images = [on_host(setting, torch.rand(3, *setting.size((720, 1280), (64, 96)))) for _ in range(INPUTS)]

    @torch.inference_mode()
    def request(index: int):
        _, (found,) = script([images[index].to(setting.device, non_blocking=True)])
        return to_host(found["scores"])

    return request


def matrix_products(setting: Setting):
    half, size = begin(setting), setting.size(8192, 64)
    one, other = (torch.randn(size, size, device=setting.device, dtype=half) for _ in range(2))

    @torch.inference_mode()
    def step():
        for _ in range(8):
            torch.mm(one, other)

    return marked(setting, step)


def _training(setting: Setting, name: str, batch: int, mixed: bool):
    begin(setting)
    with torch.device(setting.device):
        model = torchvision.models.get_model(name, weights=None).train()
    images = _images(setting, batch, torch.float32)[0].to(setting.device)
    labels = torch.randint(1000, (images.shape[0],)).to(setting.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(setting.device, torch.bfloat16, enabled=mixed):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return marked(setting, step)


def mobilenet_training(setting: Setting):
    return _training(setting, "mobilenet_v2", 256, mixed=False)


def resnet_training(setting: Setting):
    return _training(setting, setting.size("resnet50", "resnet18"), 64, mixed=True)
