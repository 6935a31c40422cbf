"""A small ASGI service with a torchvision model, and a client that measures it. See asgi_service.sh.

  asgi_service.py serve [--middleware] [--device cuda]      prints the port when it is ready
  asgi_service.py load PORT --seconds 20                    prints one line of JSON

The server is Starlette under uvicorn (pip install starlette uvicorn). The client sends the headers, then the body
`--gap-ms` later, as clients on a network do. Latencies are from the last byte of the body to the end of the
response, in ms.
"""

import argparse
import asyncio
import json
import random
import socket
import time

SIZE = 224
IMAGE_BYTES = 3 * SIZE * SIZE
HEADERS = f"POST /predict HTTP/1.1\r\nhost: here\r\ncontent-length: {IMAGE_BYTES}\r\n\r\n".encode()


def model_app(name: str, device: str):
    import torch
    import torchvision
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval().to(device)

    @torch.inference_mode()
    def classify(body: bytearray) -> int:
        image = torch.frombuffer(body, dtype=torch.uint8).to(device).view(1, 3, SIZE, SIZE)
        return int(model(image.float().div_(255)).argmax().item())  # .item() waits for the GPU

    async def predict(request: Request) -> JSONResponse:
        return JSONResponse({"class": await run_in_threadpool(classify, bytearray(await request.body()))})

    for _ in range(20):
        classify(bytearray(IMAGE_BYTES))
    return Starlette(routes=[Route("/predict", predict, methods=["POST"])])


async def serve(args) -> None:
    import uvicorn

    app = model_app(args.model, args.device)
    if args.middleware:
        from sluice.asgi import AnnounceMiddleware

        app = AnnounceMiddleware(app, ahead=args.ahead_ms / 1e3)
    # asyncio turns Nagle's algorithm off only if the socket names its protocol: a response would take 40 ms more.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        print(listening.getsockname()[1], flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        await server.serve(sockets=[listening])


async def load(args) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", args.port)
    times, body, until = [], random.Random(1).randbytes(IMAGE_BYTES), time.monotonic() + args.seconds
    arrivals = random.Random(2)
    while time.monotonic() < until:
        await asyncio.sleep(arrivals.expovariate(args.rate))
        writer.write(HEADERS)
        await writer.drain()
        await asyncio.sleep(args.gap_ms / 1e3)
        writer.write(body)
        await writer.drain()
        begun = time.monotonic()
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        times.append((time.monotonic() - begun) * 1e3)
    times.sort()
    at = {f"p{share}_ms": round(times[min(len(times) - 1, len(times) * share // 100)], 3) for share in (50, 99)}
    print(json.dumps({"requests": len(times), **at}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    server = commands.add_parser("serve")
    server.set_defaults(run=serve)
    server.add_argument("--middleware", action="store_true")
    server.add_argument("--ahead-ms", type=float, default=2.0)
    server.add_argument("--model", default="resnet50")
    server.add_argument("--device", default="cuda")
    client = commands.add_parser("load")
    client.set_defaults(run=load)
    client.add_argument("port", type=int)
    client.add_argument("--seconds", type=float, default=20)
    client.add_argument("--rate", type=float, default=40, help="requests per second, before waits (Poisson)")
    client.add_argument("--gap-ms", type=float, default=2.0, help="from the headers to the body")
    args = parser.parse_args()
    asyncio.run(args.run(args))


if __name__ == "__main__":
    main()
