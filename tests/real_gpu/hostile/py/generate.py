"""transformers: generate() of a small random Llama, greedy, with the dynamic and the static cache."""

import torch
from common import clock, report
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=1000,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=4,
)
model = LlamaForCausalLM(config).cuda().eval()
ids = torch.arange(16, device="cuda").reshape(2, 8) + 5
model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
torch.cuda.synchronize()
begin = clock()
out = None
for _ in range(4):
    out = model.generate(ids, max_new_tokens=100, do_sample=False, pad_token_id=0, eos_token_id=None)
torch.cuda.synchronize()
took = clock() - begin
report(out.tolist(), 400, took)
