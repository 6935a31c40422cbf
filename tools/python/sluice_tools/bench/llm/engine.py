"""The engine of the LLM server: transformers' continuous batching with a random-weight Llama of 1B parameters.

As transformers 5.17 has it, but for two settings: two steps are in flight (asynchronous batching), and every step is a
CUDA graph. transformers chooses both by itself only where flash-attn is installed. On a CPU there is neither.
"""

import logging
import queue

import torch
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from sluice_tools.bench.programs.llama import model
from sluice_tools.bench.programs.setting import Setting

BATCH = 24  # requests that the engine works on at the same time
_STEP_TOKENS = 256  # longer prompts take several steps
_STEP_GRAIN = 32  # a step's tokens are padded to a multiple of this, and each multiple has a graph
_BLOCK, _BLOCKS = 64, 128  # of the cache, in tokens
# transformers keeps graphs apart by the longest sequence, too, in powers of two from this on.
LONGEST = 1024


def _settings(gpu: bool) -> ContinuousBatchingConfig:
    return ContinuousBatchingConfig(
        block_size=_BLOCK,
        num_blocks=_BLOCKS,
        max_batch_tokens=_STEP_TOKENS,
        max_requests_per_batch=BATCH,
        allow_block_sharing=False,  # no two prompts are alike
        use_async_batching=gpu,
        use_cuda_graph=gpu,
        q_padding_interval_size=_STEP_GRAIN,
        kv_padding_interval_size=_BLOCK * _BLOCKS,
    )


class Engine:
    """Takes requests from any thread, and gives their tokens as they come."""

    def __init__(self, setting: Setting):
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
        self._gpu = setting.gpu
        self._model = model(setting)
        self._model.set_attn_implementation("paged|sdpa")
        self._manager = self._model.init_continuous_batching(
            GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0), _settings(setting.gpu)
        )
        if setting.gpu:
            self._capture()
        self._manager.start()

    @torch.no_grad()
    def _capture(self) -> None:
        """All graphs that will be needed, the largest first. transformers' own warm-up would leave most of them to the
        first requests that need them."""
        self._manager.batch_processor = processor = self._manager._create_batch_processor()
        for _ in processor.inputs_and_outputs.io_pairs:
            for tokens in range(_STEP_TOKENS, 0, -_STEP_GRAIN):
                processor.model_runner.run_one_warmup(self._model, tokens, 0)
            processor.inputs_and_outputs.swap_io_pairs()
        torch.cuda.synchronize()
        self._manager.warmed_up = True
        wanted = len(processor.inputs_and_outputs.io_pairs) * _STEP_TOKENS // _STEP_GRAIN
        if self.graphs() != wanted:  # transformers only logs why
            raise RuntimeError(f"{self.graphs()} of {wanted} CUDA graphs were captured")

    def graphs(self) -> int:
        """How many CUDA graphs exist; 0 on a CPU."""
        if not self._gpu or self._manager.batch_processor is None:
            return 0
        pairs = self._manager.batch_processor.inputs_and_outputs.io_pairs
        return sum(len(pair.device_io.graphs._storage) for pair in pairs)

    def add(self, name: str, prompt: list[int], new: int) -> None:
        """new: how many tokens to generate."""
        self._manager.add_request(prompt, request_id=name, max_new_tokens=new, streaming=True)

    def cancel(self, name: str) -> None:
        self._manager.cancel_request(name)

    def outputs(self, wait_s: float) -> list[tuple[str, int, bool]]:
        """What has come since the last call: name, tokens so far, whether that is all. Raises RuntimeError if the
        engine has failed."""
        found, waiting = [], self._manager.output_router.output_queue
        try:
            found.append(waiting.get(timeout=wait_s))
            while True:
                found.append(waiting.get_nowait())
        except queue.Empty:
            pass
        if not found and not self._manager.is_running():
            raise RuntimeError(f"the engine ended: {self._manager.background_thread_status.fatal_error}")
        if wrong := [one.error for one in found if one.error]:
            raise RuntimeError(wrong[0])
        return [(one.request_id, len(one.generated_tokens), one.is_finished()) for one in found]

    def end(self) -> None:
        self._manager.stop(block=True, timeout=10)
