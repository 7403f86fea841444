#!/usr/bin/env python3
"""A replica of `darkroom-ray serve` behind uvicorn, as Ray Serve's proxies are, without Ray's cluster. Runs in .venv-ray. Says on stdout where it
listens and where its server does; ends with stdin.

usage: ray_replica.py FOLDER KEYS
"""

import asyncio
import json
import socket
import sys

import uvicorn
from ray.serve import metrics
from ray_units import ROOT  # noqa: F401: puts the package on the path.
from starlette.requests import Request as HttpRequest

from darkroom_ray.request import Request, Service  # noqa: E402
from darkroom_ray.serve_replica import PaintingReplica  # noqa: E402


async def main(folder: str, keys: str) -> None:
    metrics.Gauge = lambda name, description: None
    replica = PaintingReplica.__new__(PaintingReplica)
    await replica.__init__(Request("serve", ("--multi-model", folder, "--keys", keys), folder=folder, service=Service()), keys)

    async def app(scope, receive, send) -> None:
        answer = await replica(HttpRequest(scope, receive))
        await answer(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    print(json.dumps({"port": listening.getsockname()[1], "server": int(replica._place.rpartition(":")[2])}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = server.force_exit = True
    await serving
    replica._child._child.end(9)
    await replica._client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
