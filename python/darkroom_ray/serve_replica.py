"""A replica of Ray Serve: one `darkroom serve` as a child, to which it hands requests on, and from which it streams replies back."""

import asyncio
import json
import queue
import re
import signal
import urllib.parse

import aiohttp
from ray.serve import metrics
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from yarl import URL

from darkroom.child_process import Child, ProgramFailed
from darkroom_ray.program import find_program
from darkroom_ray.request import Request
from darkroom_ray.serve_scaling import LOAD

LISTENING = re.compile(r"serving .* at http://127\.0\.0\.1:(\d+)")
MOST_BODY_BYTES = 17_000_000  # Somewhat more than the program takes, which then says so itself.
OPEN_COST = re.compile(r"^darkroom_serve_open_cost (\S+)$", re.MULTILINE)
BATCH_PICTURES = 8  # For which a replica is meant, where nobody says otherwise: what one network call takes.
USUAL_STEPS = 50 + 2
# The child ends what it paints within 30 s (docs/serve.md).
DRAIN_SECONDS = 35.0
HEALTH_SECONDS = 20.0
# Of one connection, not of the message (RFC 9110); what is sent is framed anew.
OF_A_CONNECTION = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "expect", "content-length"}
# What knows one server's requests alone: among several it would be another's.
OF_ONE_SERVER = re.compile(r"/v1/jobs(/|$)|/sdapi/v1/(progress|interrupt|skip|options)$")


def key_of(path: str) -> str:
    """The first key of a file, for the replica's own questions; none without a file."""
    if not path:
        return ""
    with open(path, encoding="utf-8") as file:
        return next((line.strip() for line in file if line.strip() and not line.startswith("#")), "")


class ServeChild:
    """`darkroom serve` on a free port of loopback."""

    def __init__(self, request: Request) -> None:
        self._told: queue.SimpleQueue[int] = queue.SimpleQueue()
        command = [find_program(request.program), *request.command("--host", "127.0.0.1", "--port", "0")]
        self._child = Child(command, None, request.folder, on_said=self._hear)

    def _hear(self, line: str) -> None:
        if found := LISTENING.search(line):
            self._told.put(int(found[1]))

    def wait_for_port(self) -> int:
        """Once it listens. Errors: ProgramFailed when it ends before."""
        while True:
            try:
                return self._told.get(timeout=0.2)
            except queue.Empty:
                if self._child.poll() is not None:
                    raise ProgramFailed(self._child.wait(), self._child.last_words()) from None

    def check(self) -> None:
        """Errors: ProgramFailed when it has ended."""
        if self._child.poll() is not None:
            raise ProgramFailed(self._child.wait(), self._child.last_words())

    def end(self) -> None:
        """It paints what it has, then ends."""
        self._child.end(signal.SIGTERM)
        try:
            self._child.wait(DRAIN_SECONDS)
        except Exception:  # It does not end by itself.
            self._child.end(signal.SIGKILL)


class PaintingReplica:
    """The deployment."""

    async def __init__(self, request: Request, keys: str) -> None:
        self._child = ServeChild(request)
        self._has_others = request.service.max_replicas > 1
        self._authorization = {"Authorization": f"Bearer {key}"} if (key := key_of(keys)) else {}
        port = await asyncio.to_thread(self._child.wait_for_port)
        self._place = f"http://127.0.0.1:{port}"
        self._client = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0))
        facts = json.loads(await self._ask("/v1/facts"))
        self._measure = metrics.Gauge("darkroom_ray_serve_load", description="Open cost of a replica by its target.")
        self._target_cost = request.service.target_cost or BATCH_PICTURES * facts["native_size"] ** 2 * USUAL_STEPS

    async def _ask(self, path: str) -> str:
        """The replica's own question. Errors: aiohttp.ClientError."""
        timeout = aiohttp.ClientTimeout(total=HEALTH_SECONDS)
        async with self._client.get(self._place + path, headers=self._authorization, timeout=timeout) as reply:
            reply.raise_for_status()
            return await reply.text()

    async def __call__(self, request: HttpRequest) -> Response:
        path = request.scope["path"]
        if self._has_others and OF_ONE_SERVER.match(path):
            return failure(501, f"{path} knows the requests of one server, and this service has several: start it with --max-replicas 1, or ask for a stream")
        query = request.scope.get("query_string", b"").decode("latin-1")
        address = URL(self._place + urllib.parse.quote(path) + (f"?{query}" if query else ""), encoded=True)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw if name.decode("latin-1").lower() not in OF_A_CONNECTION]
        body = await body_of(request)
        if body is None:
            return failure(413, f"the body of a request has at most {MOST_BODY_BYTES} bytes")
        try:
            reply = await self._client.request(request.method, address, headers=headers, data=body or None, allow_redirects=False)
        except aiohttp.ClientError:
            return failure(503, "the server behind this replica is gone; another one takes its place", {"Retry-After": "5"})
        answer = StreamingResponse(pieces_of(reply), status_code=reply.status)
        kept = OF_A_CONNECTION - {"content-length"}
        answer.raw_headers = [(name.lower(), value) for name, value in reply.raw_headers if name.decode("latin-1").lower() not in kept]
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


async def body_of(request: HttpRequest) -> bytes | None:
    """None: it is too long, whatever it says of itself."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY_BYTES:
            return None
    return bytes(body)


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
