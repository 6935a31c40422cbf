"""An encoder of BERT-large's size: random weights, seed 0."""

import torch

from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, by_graph, marked, on_host
from sluice_tools.models.encoder import VOCABULARY, Encoder
from sluice_tools.models.names import ENCODERS


def _model(setting: Setting) -> Encoder:
    half = begin(setting)
    with torch.device(setting.device):
        return Encoder(*ENCODERS[setting.size("bert_large", "bert_tiny")]).eval().to(half)


def graph(setting: Setting):
    model = _model(setting)
    texts = [on_host(setting, torch.randint(VOCABULARY, (1, 128))) for _ in range(INPUTS)]
    return by_graph(setting, model, texts)


def batch(setting: Setting):
    model = _model(setting)
    texts = torch.randint(VOCABULARY, setting.size((8, 512), (2, 16))).to(setting.device)

    @torch.inference_mode()
    def step():
        model(texts)

    return marked(setting, step)
