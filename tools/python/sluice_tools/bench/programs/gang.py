"""Programs on two GPUs: data-parallel training by NCCL, a process for each GPU, and inference by one process on both.

The ranks of a training wait for each other inside kernels, so a rank that Sluice holds makes the other one spin.
"""

import os
import subprocess
import sys
import tempfile

import torch
import torchvision

from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, marked, on_host, to_host

_RANKS = 2
_STEP = b"s"


def _rank(setting: Setting, rank: int, meeting: str):
    """One rank of the training: a function that launches a step."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast may be forbidden where others share the host
    begin(setting)
    device = torch.device(setting.device, rank) if setting.gpu else torch.device("cpu")
    if setting.gpu:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        "nccl" if setting.gpu else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=_RANKS
    )
    model = torchvision.models.get_model(setting.size("resnet50", "resnet18"), weights=None).train().to(device)
    parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank] if setting.gpu else None)
    batch, side = setting.size((64, 224), (2, 32))
    images, labels = torch.rand(batch, 3, side, side, device=device), torch.randint(1000, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(parallel(images), labels)
        loss.backward()
        optimizer.step()

    return step


def training(setting: Setting):
    """Rank 0. Each of its steps tells rank 1 to make one as well, and rank 1 ends with the pipe."""
    folder = tempfile.TemporaryDirectory(prefix="sluice-gang-")  # removed with `step`
    meeting = os.path.join(folder.name, "meeting")
    other = subprocess.Popen(
        [sys.executable, "-m", __name__, setting.device, str(int(setting.tiny)), meeting], stdin=subprocess.PIPE
    )
    own = _rank(setting, 0, meeting)

    def step():
        assert other.stdin and folder
        other.stdin.write(_STEP)
        other.stdin.flush()
        own()

    return marked(setting, step)


def follow(device: str, tiny: bool, meeting: str) -> None:
    """Rank 1, with two steps launched ahead at most, as rank 0."""
    setting = Setting(device, tiny)
    step, pending = marked(setting, _rank(setting, 1, meeting)), []
    while sys.stdin.buffer.read(1) == _STEP:
        pending.append(step())
        if len(pending) > 2:
            pending.pop(0)()
    os._exit(0)  # a communicator whose other ranks are gone may wait for them at exit


def inference(setting: Setting):
    """Each request runs on both GPUs at the same time, as the ranks of a tensor-parallel server do."""
    begin(setting)
    devices = [torch.device(setting.device, rank) if setting.gpu else torch.device("cpu") for rank in range(_RANKS)]
    name = setting.size("resnet50", "resnet18")
    model = torchvision.models.get_model(name, weights=None).eval()
    copies = [torchvision.models.get_model(name, weights=None).eval().to(device) for device in devices]
    for copy in copies:
        copy.load_state_dict(model.state_dict())
    batch, side = setting.size((4, 224), (2, 32))
    images = [on_host(setting, torch.rand(batch, 3, side, side)) for _ in range(INPUTS)]

    @torch.inference_mode()
    def request(index: int):
        made = [copy(images[index].to(device, non_blocking=True)) for copy, device in zip(copies, devices)]
        outputs = [to_host(output) for output in made]
        return outputs[0]

    return request


if __name__ == "__main__":
    follow(sys.argv[1], sys.argv[2] == "1", sys.argv[3])
