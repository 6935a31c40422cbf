"""A small ASGI service with a torchvision model, and a client that measures it. See asgi_service.sh.

  asgi_service.py serve [--middleware] [--device cuda]      prints the port when it is ready
  asgi_service.py load PORT --seconds 20                    prints one line of JSON

The server here is the least that ASGI needs, so that nothing has to be installed. The client sends the
headers, then the body `--gap-ms` later, as clients on a network do. Latencies are from the last byte of
the body to the end of the response, in ms.
"""

import argparse
import asyncio
import json
import random
import time

SIZE = 224
IMAGE_BYTES = 3 * SIZE * SIZE
HEADERS = f"POST /predict HTTP/1.1\r\nhost: here\r\ncontent-length: {IMAGE_BYTES}\r\n\r\n".encode()


def model_app(name: str, device: str):
    import torch
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval().to(device)

    @torch.inference_mode()
    def classify(body: bytearray) -> int:
        image = torch.frombuffer(body, dtype=torch.uint8).to(device).view(1, 3, SIZE, SIZE)
        return int(model(image.float().div_(255)).argmax().item())  # .item() waits for the GPU

    async def app(scope, receive, send):
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        said = json.dumps({"class": classify(body)}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
        await send({"type": "http.response.body", "body": said})

    for _ in range(20):
        classify(bytearray(IMAGE_BYTES))
    return app


async def answer(app, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection: requests with a content-length, one after the other."""
    while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split()
        fields = [line.split(": ", 1) for line in lines[1:] if line]
        headers = [(name.lower().encode(), value.encode()) for name, value in fields]
        left = int(dict(headers)[b"content-length"])

        async def receive():
            nonlocal left
            part = await reader.read(min(left, 65536))
            if not part:
                return {"type": "http.disconnect"}
            left -= len(part)
            return {"type": "http.request", "body": part, "more_body": left > 0}

        async def send(message):
            if message["type"] == "http.response.start":
                writer.write(b"HTTP/1.1 200 OK\r\n" + b"".join(b"%s: %s\r\n" % h for h in message["headers"]) + b"\r\n")
            else:
                writer.write(message["body"])
                await writer.drain()

        scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "headers": headers}
        await app(scope, receive, send)
    writer.close()


async def serve(args) -> None:
    app = model_app(args.model, args.device)
    if args.middleware:
        from sluice.asgi import AnnounceMiddleware

        app = AnnounceMiddleware(app, ahead=args.ahead_ms / 1e3)

    async def connected(reader, writer):
        try:
            await answer(app, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


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
