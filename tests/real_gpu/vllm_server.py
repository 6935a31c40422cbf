"""vLLM as the server of `sluice bench llm`: the same Llama, requests and protocol.

sluice bench llm --server tests/real_gpu/vllm_server.py --best-effort llama-finetuning --modes time-sliced

It runs vLLM 0.24, with the settings that the command needs to compare windows. The engine is a child process, which is
the client of the session. There is no compilation: decoding steps are CUDA graphs, those with a prefill are eager.
"""

import argparse
import asyncio
import os
import queue
import sys
import tempfile

from sluice_tools.bench.common.protocol import run_program
from sluice_tools.bench.llm.server import serve
from sluice_tools.bench.programs.llama import configuration
from sluice_tools.bench.programs.setting import Setting

os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # standard output has the answers

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

_BATCH = 24  # requests at a time, as many as the other server takes
_CACHE = 1 << 30  # bytes: 32 KiB for a token, so no request is preempted


def settings(model: str) -> AsyncEngineArgs:
    return AsyncEngineArgs(
        model=model,
        load_format="dummy",
        dtype="bfloat16",
        skip_tokenizer_init=True,
        max_model_len=1024,
        max_num_seqs=_BATCH,
        max_num_batched_tokens=8192,  # as `vllm serve` has it on a GPU of 70 GiB or more
        gpu_memory_utilization=0.3,  # so much has to be free at the start
        kv_cache_memory_bytes=_CACHE,
        enable_prefix_caching=False,  # all conditions of a round get the same prompts
        disable_log_stats=True,
        compilation_config={
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [1, 2, 4, 8, 16, _BATCH],
        },
    )


class VllmEngine:
    """Takes requests from any thread, and gives their tokens as they come."""

    def __init__(self, llm: AsyncLLM, loop: asyncio.AbstractEventLoop):
        self._llm = llm
        self._loop = loop
        self._found: queue.SimpleQueue = queue.SimpleQueue()

    def graphs(self) -> int:
        """All are captured before the first request."""
        return len(self._llm.vllm_config.compilation_config.cudagraph_capture_sizes)

    def add(self, name: str, prompt: list[int], new: int) -> None:
        asyncio.run_coroutine_threadsafe(self._generate(name, prompt, new), self._loop)

    def cancel(self, name: str) -> None:
        asyncio.run_coroutine_threadsafe(self._llm.abort(name), self._loop)

    async def _generate(self, name: str, prompt: list[int], new: int) -> None:
        wanted = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
        try:
            async for output in self._llm.generate({"prompt_token_ids": prompt}, wanted, name):
                self._found.put((name, len(output.outputs[0].token_ids), output.finished))
        except Exception as error:  # whatever vLLM raises ends the server
            self._found.put(error)

    def outputs(self, wait_s: float) -> list[tuple[str, int, bool]]:
        """What has come since the last call: name, tokens so far, whether that is all. Raises RuntimeError if the
        engine has failed."""
        found = []
        try:
            found.append(self._found.get(timeout=wait_s))
            while True:
                found.append(self._found.get_nowait())
        except queue.Empty:
            pass
        if wrong := [one for one in found if isinstance(one, Exception)]:
            raise RuntimeError(f"{type(wrong[0]).__name__}: {wrong[0]}")
        return found


async def _run(commands, path: str) -> None:
    with tempfile.TemporaryDirectory(prefix="vllm-llama-") as folder:
        shape = configuration(Setting("cuda", False))
        shape.architectures = ["LlamaForCausalLM"]
        shape.save_pretrained(folder)
        engine = VllmEngine(AsyncLLM.from_engine_args(settings(folder)), asyncio.get_running_loop())
    await asyncio.to_thread(serve, commands, path, engine)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    options = parser.parse_args()
    return run_program(lambda commands: asyncio.run(_run(commands, options.socket)))


if __name__ == "__main__":
    sys.exit(main())
