"""Acceptance 10: manners by the clock on the wall, as the servers see them: opt-outs, Retry-After, back-off and breaker, limits per host."""

import socket
import threading
import time

from harness import Trials, darkroom, heads_of_requests, require, summary_of, temporary_folder, write_url_lines
from hostile_test import png  # Of tests/integration.

PER_HOST = 2
ROWS_OF_EACH = 24
ROBOTS = b"User-agent: *\nDisallow: /\n\nUser-agent: darkroom\nDisallow: /private/\n"
SIGNALS = b"User-agent: *\nContent-Signal: /signal/ search=yes, ai-train=no\nAllow: /\n"
CONTACT = "pictures@example.org"


class Host:
    """A server at a loopback address of its own, so that the program takes it for a host of its own. Keeps what it was asked, and when."""

    def __init__(self, address: str, port: int, answers):
        self.listener = socket.create_server((address, port), backlog=256)
        self.address, self.port = self.listener.getsockname()
        self.answers = answers
        self.lock = threading.Condition()
        self.asked: list[tuple[float, str]] = []  # (monotonic seconds, path); also that of robots.txt.
        self.agents: set[str] = set()
        self.now = self.most = 0  # Requests at a time.
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *unused) -> None:
        self.listener.close()

    def url(self, path: str) -> str:
        return f"http://{self.address}:{self.port}/{path}"

    def paths(self) -> list[str]:
        with self.lock:
            return [path for _, path in self.asked]

    def times(self) -> list[float]:
        with self.lock:
            return [at for at, path in self.asked if path != "/robots.txt"]

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return  # Closed.
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                for head in heads_of_requests(connection):
                    path = self.note(head)
                    try:
                        reply = self.answers(self, path)
                    finally:
                        with self.lock:
                            self.now -= 1
                    if reply is None:
                        return
                    connection.sendall(reply)
            except OSError:
                return  # The client has gone.

    def note(self, head: bytes) -> str:
        path = head.split(b" ")[1].decode()
        with self.lock:
            self.asked.append((time.monotonic(), path))
            self.agents |= {line.split(b":", 1)[1].strip().decode() for line in head.split(b"\r\n") if line.lower().startswith(b"user-agent:")}
            self.now += 1
            self.most = max(self.most, self.now)
            self.lock.notify_all()
        return path


def reply(body: bytes, headers: str = "", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def picture(headers: str = "") -> bytes:
    return reply(png(64, 64), "Content-Type: image/png\r\n" + headers)


def with_robots(robots: bytes | None, answers):
    """`answers` for all but robots.txt, which is `robots`, or missing."""
    missing = reply(b"", "", "404 Not Found")
    return lambda host, path: answers(host, path) if path != "/robots.txt" else missing if robots is None else reply(robots, "Content-Type: text/plain\r\n")


def tagged(host: Host, path: str) -> bytes:
    tags = {"no": "darkroom: noai", "all": "noimageai", "other": "otherbot: noai"}
    return picture(f"X-Robots-Tag: {tags[path.split('/')[1]]}\r\n")


def run(folder, urls: list[str], hosts: list[Host], *flags, max_park: int) -> tuple[dict, float]:
    """Downloads the rows. Summary; when the program was started."""
    table = write_url_lines(folder / "urls.jsonl", urls)
    places = [word for host in hosts for word in ("--allow-private", f"{host.address}/32:{host.port}")]
    begin = time.monotonic()
    darkroom("download", folder / "out", "--metadata", table, *places, "--error-budget", "100", "--per-host", PER_HOST, "--respect", "robots,noai,aipref", "--max-park", max_park,
             "--contact", CONTACT, "--json-summary", folder / "summary.json", *flags)
    return summary_of(folder / "summary.json", "download"), begin


def opt_outs_are_honoured(trials: Trials) -> None:
    """robots.txt is asked for once and keeps us from what it names; headers and signals are read before the body counts."""
    rows = trials.count(ROWS_OF_EACH, 1000)
    with temporary_folder() as folder, Host("127.0.0.2", 0, with_robots(ROBOTS, lambda host, path: picture())) as robots, \
            Host("127.0.0.3", robots.port, with_robots(None, tagged)) as tags, Host("127.0.0.4", robots.port, with_robots(SIGNALS, lambda host, path: picture())) as signals:
        good = [url for i in range(rows) for url in (robots.url(f"public/{i}"), tags.url(f"other/{i}"), signals.url(f"plain/{i}"))]
        bad = [url for i in range(rows) for url in (robots.url(f"private/{i}"), tags.url(f"no/{i}"), tags.url(f"all/{i}"), signals.url(f"signal/{i}"))]
        summary, _ = run(folder, good + bad, [robots, tags, signals], max_park=60)
        trials.figures.update(rows=len(good + bad), rows_by_error=summary["rows_by_error"])
        require(summary["rows_out"] == len(good), "rows that nobody opted out", summary)
        require(summary["rows_by_error"] == {"opted_out": len(bad)}, "rows that were opted out", summary["rows_by_error"])
        for host in (robots, tags, signals):
            require(host.paths().count("/robots.txt") == 1, "robots.txt is asked for once", host.address, host.paths().count("/robots.txt"))
        for host, part in ((robots, "/private/"), (signals, "/signal/")):
            require(not any(part in path for path in host.paths()), "a path that robots.txt keeps us from was asked for", host.address)
        require(all("darkroom" in agent and CONTACT in agent for agent in robots.agents), "the User-Agent says who we are", robots.agents)


def a_host_that_asks_for_time_gets_it(trials: Trials) -> None:
    """429 with Retry-After: nothing but what was on the wire reaches the host before, and no row is lost to it."""
    rows, wait = ROWS_OF_EACH, trials.count(3, 20)
    said: list[float] = []

    def answer(host: Host, path: str) -> bytes:
        with host.lock:
            is_throttled = not said and len(host.asked) > 5
            if is_throttled:
                said.append(time.monotonic())
        return reply(b"", f"Retry-After: {wait}\r\n", "429 Too Many Requests") if is_throttled else picture()

    with temporary_folder() as folder, Host("127.0.0.2", 0, with_robots(None, answer)) as host:
        summary, _ = run(folder, [host.url(f"{i}") for i in range(rows)], [host], max_park=600)
        early = [at - said[0] for at in host.times() if said[0] < at < said[0] + wait]
        trials.figures.update(rows=rows, retry_after=wait, on_the_wire=len(early))
        require(summary["rows_out"] == rows, "a row was lost to a pause", summary)
        require(len(early) <= PER_HOST - 1, "requests within Retry-After (seconds after it was said)", early)


def requests_at_a_time_are_limited(trials: Trials) -> None:
    def answer(host: Host, path: str) -> bytes:
        with host.lock:  # One too many gets time to come; as many as may must come.
            host.lock.wait_for(lambda: host.most > PER_HOST, timeout=0.2)
            host.lock.wait_for(lambda: host.most >= PER_HOST, timeout=10)
        return picture()

    with temporary_folder() as folder, Host("127.0.0.2", 0, with_robots(None, answer)) as host:
        summary, _ = run(folder, [host.url(f"{i}") for i in range(ROWS_OF_EACH)], [host], max_park=60)
        trials.figures.update(rows=ROWS_OF_EACH, at_a_time=host.most)
        require(summary["rows_out"] == ROWS_OF_EACH, "rows", summary)
        require(host.most == PER_HOST, "requests at a time", host.most)


def requests_a_second_are_limited(trials: Trials) -> None:
    rate = 4
    with temporary_folder() as folder, Host("127.0.0.2", 0, with_robots(None, lambda host, path: picture())) as host:
        summary, begin = run(folder, [host.url(f"{i}") for i in range(ROWS_OF_EACH)], [host], "--per-host-rps", rate, max_park=60)
        seconds = host.times()[-1] - begin  # The first one may have been seen late, but not before the program was started.
        trials.figures.update(rows=ROWS_OF_EACH, seconds=round(seconds, 2), least_seconds=(ROWS_OF_EACH - 1) / rate)
        require(summary["rows_out"] == ROWS_OF_EACH, "rows", summary)
        require(seconds >= (ROWS_OF_EACH - 1) / rate, "requests came faster than --per-host-rps allows (seconds)", seconds)


def a_dead_host_is_left_alone(trials: Trials) -> None:
    """Its breaker opens after 20 failures in a row: rows that follow cost no request, and the others go on."""
    rows = trials.count(200, 5000)
    with temporary_folder() as folder, Host("127.0.0.2", 0, with_robots(None, lambda host, path: None)) as dead, \
            Host("127.0.0.3", dead.port, with_robots(None, lambda host, path: picture())) as alive:
        urls = [url for i in range(rows) for url in (dead.url(f"{i}"), alive.url(f"{i}"))]
        summary, _ = run(folder, urls, [dead, alive], "--retries", 1, max_park=5)
        asked = len(dead.times())
        trials.figures.update(rows=len(urls), asked_of_the_dead_host=asked, rows_by_error=summary["rows_by_error"])
        require(summary["rows_out"] == rows, "rows of the other host", summary)
        require(sum(summary["rows_by_error"].values()) == rows, "rows of the dead host end with an error", summary)
        # Twenty failures, what was on the wire then, and what had failed before any host had answered: it is tried again as if it had not been.
        require(0 < asked <= 20 + (PER_HOST - 1) + PER_HOST, "requests to a host whose breaker should be open", asked)


CHECKS = [
    ("manners.opt_outs", opt_outs_are_honoured),
    ("manners.retry_after", a_host_that_asks_for_time_gets_it),
    ("manners.at_a_time", requests_at_a_time_are_limited),
    ("manners.a_second", requests_a_second_are_limited),
    ("manners.breaker", a_dead_host_is_left_alone),
]
