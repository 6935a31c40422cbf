"""Training of a text encoder under torch.compile, whose kernels are Triton's."""

import torch

from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, marked
from sluice_tools.models.encoder import VOCABULARY, Encoder


def training(setting: Setting):
    begin(setting)
    with torch.device(setting.device):
        model = Encoder(*setting.size((12, 768, 12), (1, 32, 2))).train()
    batch, length = setting.size((16, 512), (2, 16))
    ids = torch.randint(VOCABULARY, (batch, length)).to(setting.device)
    wanted = torch.randn(batch, length, model.positions.shape[1]).to(setting.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # The compiler of the CPU takes half a minute, which a trial has no use for.
    network = torch.compile(model, backend="eager" if setting.tiny else "inductor")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(setting.device, dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(network(ids).float(), wanted)
        loss.backward()
        optimizer.step()

    return marked(setting, step)
