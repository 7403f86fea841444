"""A replica of Ray Serve: one `darkroom serve` as a child, to which it hands requests on, and from which it streams replies back."""

import asyncio
import json
import re
import urllib.parse

import aiohttp
from ray.serve import metrics
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from yarl import URL

from darkroom_ray.request import Request
from darkroom_ray.serve_child import ServeChild
from darkroom_ray.serve_scaling import LOAD

OPEN_COST = re.compile(r"^darkroom_serve_open_cost (\S+)$", re.MULTILINE)
BATCH_PICTURES = 8  # For which a replica is meant, where nobody says otherwise: what one network call takes.
USUAL_STEPS = 50 + 2
SIZE_WITHOUT_MODEL = 512
NO_MODEL_YET = (404, 409)  # What the program says of the facts where it has no model, and of a model that is not loaded.
HEALTH_SECONDS = 20.0
# Of one connection, not of the message (RFC 9110); what is sent is framed anew.
OF_A_CONNECTION = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
# What knows one server's requests alone: among several it would be another's.
OF_ONE_SERVER = re.compile(r"/v1/jobs(/|$)|/sdapi/v1/(progress|interrupt|skip|options)$|/metrics$")


def key_of(path: str) -> str:
    """The first key of a file, for the replica's own questions; none without a file."""
    if not path:
        return ""
    with open(path, encoding="utf-8") as file:
        return next((line.strip() for line in file if line.strip() and not line.startswith("#")), "")


class PaintingReplica:
    """The deployment."""

    async def __init__(self, request: Request, keys: str) -> None:
        self._child = ServeChild(request)
        self._has_others = request.service.max_replicas > 1
        self._authorization = {"Authorization": f"Bearer {key}"} if (key := key_of(keys)) else {}
        port = await asyncio.to_thread(self._child.wait_for_port)
        self._place = f"http://127.0.0.1:{port}"
        self._client = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0))
        native_size = await self._native_size()
        if not native_size and self._has_others:
            raise ValueError("a server whose models come by requests has them for itself: ask for --max-replicas 1, or name a MODEL")
        self._measure = metrics.Gauge("darkroom_ray_serve_load", description="Open cost of a replica by its target.")
        self._target_cost = request.service.target_cost or BATCH_PICTURES * (native_size or SIZE_WITHOUT_MODEL) ** 2 * USUAL_STEPS

    async def _native_size(self) -> int:
        """Of the first model's pictures; 0: there is no model yet."""
        try:
            return json.loads(await self._ask("/v1/facts"))["native_size"]
        except aiohttp.ClientResponseError as error:
            if error.status not in NO_MODEL_YET:
                raise
            return 0

    async def _ask(self, path: str) -> str:
        """The replica's own question. Errors: aiohttp.ClientError."""
        timeout = aiohttp.ClientTimeout(total=HEALTH_SECONDS)
        async with self._client.get(self._place + path, headers=self._authorization, timeout=timeout) as reply:
            reply.raise_for_status()
            return await reply.text()

    async def __call__(self, request: HttpRequest) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))  # Of a named service: /NAME.
        if self._has_others and OF_ONE_SERVER.match(path):
            return failure(501, f"{path} knows the requests of one server, and this service has several: start it with --max-replicas 1; else ask for a stream, or for numbers with --metrics-folder")
        query = request.scope.get("query_string", b"").decode("latin-1")
        address = URL(self._place + urllib.parse.quote(path) + (f"?{query}" if query else ""), encoded=True)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw if name.decode("latin-1").lower() not in OF_A_CONNECTION]
        try:
            reply = await self._client.request(request.method, address, headers=headers, allow_redirects=False, **body_of(request))
        except aiohttp.ClientError:
            return failure(503, "the server behind this replica is gone; another one takes its place", {"Retry-After": "5"})
        answer = StreamingResponse(pieces_of(reply), status_code=reply.status)
        answer.raw_headers = [(name.lower(), value) for name, value in reply.raw_headers if name.decode("latin-1").lower() not in OF_A_CONNECTION]
        return answer

    async def check_health(self) -> None:
        """Ray Serve replaces a replica whose child has ended or does not answer."""
        self._child.check()
        await self._ask("/health")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        found = OPEN_COST.search(await self._ask("/metrics"))
        load = float(found[1]) / self._target_cost if found else 0.0
        self._measure.set(load)
        return {LOAD: load}

    def __del__(self) -> None:
        """Called by Ray Serve once no request is open."""
        if hasattr(self, "_child"):
            self._child.end()


def body_of(request: HttpRequest) -> dict:
    """How its body goes on, as options of the child's request: piece by piece as it comes, once the child, which decides by the head whether it
    reads one, asks for it. A reply that comes before the body's end ends it. {}: it has none."""
    has_body = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
    return {"data": request.stream(), "expect100": True} if has_body else {}


async def pieces_of(reply: aiohttp.ClientResponse):
    """As they come; a client that goes closes the child's connection, which gives its order up."""
    try:
        async for piece in reply.content.iter_any():
            yield piece
    finally:
        reply.close()


def failure(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """In the form of the program's own."""
    return Response(json.dumps({"error": {"message": message}}), status, headers, "application/json")
