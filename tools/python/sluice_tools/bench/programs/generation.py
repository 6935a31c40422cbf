"""Models of Hugging Face's transformers, made from their configurations: random weights, no download."""

import torch
import transformers

from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, on_host, to_host

_PROMPT, _NEW = 64, 8  # tokens


def token(setting: Setting):
    """Some 700 launches a token, bound by the host."""
    half = begin(setting)
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    billion = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
    sizes = setting.size(billion | {"vocab_size": 128256}, small | {"vocab_size": 1000})
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=setting.size(8, 1))
    with torch.device(setting.device):
        model = transformers.LlamaForCausalLM(config).eval().to(half)
    ids = [torch.full((1, 1), 7 + index, device=setting.device) for index in range(INPUTS)]

    @torch.inference_mode()
    def request(index: int):
        return to_host(model(ids[index], use_cache=False).logits[0, -1, :64])

    return request


def gpt2(setting: Setting):
    begin(setting)
    small = {"n_layer": 2, "n_embd": 64, "n_head": 2} if setting.tiny else {}
    config = transformers.GPT2Config(**small)
    model = transformers.GPT2LMHeadModel(config).eval().to(setting.device)
    prompts = torch.randint(config.vocab_size, (INPUTS, 1, _PROMPT))

    @torch.inference_mode()
    def request(index: int):
        ids = prompts[index].to(setting.device)
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=_NEW,
            min_new_tokens=_NEW,
            do_sample=False,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
        return to_host(made.scores[-1])

    return request


def whisper(setting: Setting):
    half = begin(setting)
    small = {
        "d_model": 64,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "max_source_positions": 50,
    }
    base = {
        "d_model": 512,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
    }
    config = transformers.WhisperConfig(**setting.size(base, small))
    model = transformers.WhisperForConditionalGeneration(config).eval().to(setting.device, half)
    shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
    audio = [on_host(setting, torch.randn(shape).to(half)) for _ in range(INPUTS)]

    @torch.inference_mode()
    def request(index: int):
        heard = model.get_encoder()(audio[index].to(setting.device, non_blocking=True))
        ids, past, made = torch.full((1, 1), 1, device=setting.device), None, None
        for _ in range(_NEW):
            made = model(encoder_outputs=heard, decoder_input_ids=ids, past_key_values=past, use_cache=True)
            ids, past = made.logits[:, -1].argmax(-1, keepdim=True), made.past_key_values
        assert made is not None
        return to_host(made.logits[:, -1])

    return request
