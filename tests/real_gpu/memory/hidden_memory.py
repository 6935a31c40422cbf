"""R9: memory that no hook of an allocation entry sees.

For each model: the memory used on the GPU, minus what PyTorch's allocator reserved, minus what was used once this
process had its context. Each model is trained in a process of its own. The processes prepare together and use the GPU
in turn. Nothing else may use the GPU meanwhile.

    hidden_memory.py [MODEL]
"""

import subprocess
import sys

import torch
from findings import finding, progress

MODELS = ("resnet152", "swin_b", "densenet161", "bert")


def hidden_mb() -> float:
    """What is used on the GPU and does not belong to PyTorch's allocator."""
    free, total = torch.cuda.mem_get_info()
    return (total - free - torch.cuda.memory_reserved()) / 1e6


def build(name: str):
    """The model and a function that makes its loss on the GPU."""
    if name == "bert":
        import transformers

        bert = transformers.BertModel(transformers.BertConfig())
        return bert, lambda model, ids: model(input_ids=ids).last_hidden_state.square().mean()
    import torchvision

    return getattr(torchvision.models, name)(), lambda model, x: model(x).square().mean()


def child(name: str) -> None:
    model, loss = build(name)
    print("ready", flush=True)
    sys.stdin.read()  # Until it is this process's turn.
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    context = hidden_mb()
    model = model.cuda().train()
    x = torch.randint(0, 1000, (16, 128), device="cuda") if name == "bert" else torch.randn(16, 3, 224, 224).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hidden = []
    for amp in (False, True):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
                value = loss(model, x)
            value.backward()
            optimizer.step()
        torch.cuda.synchronize()
        hidden.append(hidden_mb())
    model.eval()
    with torch.no_grad():
        loss(model, x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss(model, x)
        graph.replay()
    torch.cuda.synchronize()
    finding(
        "R9",
        name,
        context_mb=context,
        after_fp32_mb=hidden[0] - context,
        after_bf16_mb=hidden[1] - context,
        after_graph_mb=hidden_mb() - context,
        reserved_mb=torch.cuda.memory_reserved() / 1e6,
    )


def main() -> None:
    children = {
        name: subprocess.Popen(
            [sys.executable, __file__, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in MODELS
    }
    for name, process in children.items():
        assert process.stdin and process.stdout
        process.stdout.readline()
        progress(f"hidden memory: {name}")
        process.stdin.close()  # Its turn.
        print(process.stdout.read(), end="", flush=True)
        if process.wait() != 0:
            finding("R9", f"{name} FAILED", exit=process.returncode)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in MODELS:
        child(sys.argv[1])
    else:
        main()
