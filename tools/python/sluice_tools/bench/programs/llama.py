"""Llama models of transformers, made from their configurations: random weights, no download."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, marked

VOCABULARY, TINY_VOCABULARY = 128256, 512


def configuration(setting: Setting, width: int = 2048, layers: int = 16) -> LlamaConfig:
    """By default of the shape of Llama 3.2 1B."""
    width, layers = setting.size((width, layers), (64, 2))
    return LlamaConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64 * setting.size(1, 2),
        num_key_value_heads=max(1, width // 256),
        vocab_size=setting.size(VOCABULARY, TINY_VOCABULARY),
        tie_word_embeddings=True,
    )


def model(setting: Setting, width: int = 2048, layers: int = 16) -> LlamaForCausalLM:
    """By default of the shape of Llama 3.2 1B; in bf16 on a GPU."""
    begin(setting)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if setting.gpu else torch.float32)
    try:
        with torch.device(setting.device):
            return LlamaForCausalLM(configuration(setting, width, layers)).eval()
    finally:
        torch.set_default_dtype(before)


def finetuning(setting: Setting):
    """All weights of a Llama of 0.4B parameters, AdamW."""
    network = model(setting, 1024, 16).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    batch, length = setting.size((8, 512), (2, 16))
    ids = torch.randint(network.config.vocab_size, (batch, length)).to(setting.device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        network(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()

    return marked(setting, step)
