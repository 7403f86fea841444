#!/usr/bin/env python3
"""A hub on loopback, for tests: models and datasets of a folder, as huggingface.co answers for them.

ROOT/models/ORG/NAME/FILES and ROOT/datasets/ORG/NAME/FILES are repositories with the branch "main"; FILES of ROOT/datasets/ORG/NAME.parquet
(CONFIG/SPLIT/0000.parquet) are the branch refs/convert/parquet. Files of `large` bytes and more lie on a second server, at another port
and so of another origin, under URLs that hold a ticket.

As a program: fake_hub.py ROOT [--token T] [--gated] [--port-file FILE]; prints its endpoint and serves until it is killed.
In a test: `with FakeHub(root) as hub:`; set its fields to make trouble, look at `hub.requests` and `hub.byte_requests`.
"""

import argparse
import hashlib
import http.server
import json
import pathlib
import sys
import threading
import urllib.parse


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    most_sent: int | None = None  # Bytes of this answer's body, behind which the connection ends.

    def log_message(self, *unused) -> None:
        pass

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: self.most_sent])
            self.close_connection |= self.most_sent is not None

    def answer_range(self, data: bytes, **headers: str) -> None:
        """RFC 9110, section 14: one range of bytes."""
        asked = self.headers.get("Range")
        if not asked:
            self.answer(200, data, **headers)
            return
        first, last = asked.removeprefix("bytes=").split("-")
        begin = int(first) if first else max(0, len(data) - int(last))
        end = min(len(data), int(last) + 1) if first and last else len(data)
        if begin >= len(data):
            self.answer(416, b"", Content_Range=f"bytes */{len(data)}")
            return
        self.answer(206, data[begin:end], Content_Range=f"bytes {begin}-{end - 1}/{len(data)}", **headers)

    def do_HEAD(self) -> None:
        self.do_GET()


class HubHandler(Handler):
    def do_GET(self) -> None:
        hub = self.server.hub
        with hub.lock:
            hub.requests.append((self.command, self.path, dict(self.headers)))
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self.answer(401, b"", X_Error_Code="GatedRepo" if hub.is_gated else "RepoNotFound")
            return
        path, _, query = self.path.partition("?")
        names = [urllib.parse.unquote(name) for name in path.strip("/").split("/")]
        if names[0] == "api":
            self.answer_api(names[1:], urllib.parse.parse_qs(query))
        else:
            self.answer_file(names if names[0] == "datasets" else ["models", *names])

    def find(self, names: list[str], revision: str) -> dict[str, bytes] | None:
        """The files of a revision; answers itself where there is none."""
        repo = "/".join(names[:3])
        revisions = self.server.hub.revisions(repo)
        if not revisions:
            self.answer(404, b"", X_Error_Code="RepoNotFound")
        elif revision not in revisions:
            self.answer(404, b"", X_Error_Code="RevisionNotFound")
        else:
            return revisions[revision]
        return None

    def answer_api(self, names: list[str], query: dict[str, list[str]]) -> None:
        if names[3] == "parquet":
            files = self.find(names, "refs/convert/parquet")
            splits: dict[str, dict[str, list[str]]] = {}
            for path in sorted(files or {}):
                config, split, _ = path.split("/")
                urls = splits.setdefault(config, {}).setdefault(split.removeprefix("partial-"), [])
                urls.append(f"{self.server.hub.endpoint}/api/{'/'.join(names[:4])}/{config}/{split}/{len(urls)}.parquet")
            if files is not None:
                self.answer(200, json.dumps(splits).encode())
            return
        files = self.find(names, names[4])
        if files is None:
            return
        commit = self.server.hub.commit(names, names[4])
        if names[3] == "revision":
            self.answer(200, json.dumps({"id": "/".join(names[1:3]), "sha": commit}).encode())
            return
        self.answer_tree(files, names, query)

    def answer_tree(self, files: dict[str, bytes], names: list[str], query: dict[str, list[str]]) -> None:
        hub = self.server.hub
        folder = "".join(name + "/" for name in names[5:])
        is_recursive = query.get("recursive") == ["true"]
        entries = {}
        for path, data in files.items():
            if not path.startswith(folder):
                continue
            for parent in pathlib.PurePosixPath(path).parents:
                if str(parent).startswith(folder) and str(parent) != ".":
                    entries[str(parent)] = {"type": "directory", "path": str(parent), "oid": "", "size": 0}
            lfs = {"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}} if len(data) >= hub.large else {}
            entries[path] = {"type": "file", "path": path, "oid": git_sha1(data), "size": len(data), **lfs}
        listed = [entries[path] for path in sorted(entries) if is_recursive or "/" not in path[len(folder) :]]
        if not listed and folder:
            self.answer(404, b"", X_Error_Code="EntryNotFound")
            return
        begin = int(query.get("cursor", ["0"])[0])
        headers = {}
        if begin + hub.page_size < len(listed):
            following = urllib.parse.urlencode({"recursive": str(is_recursive).lower(), "cursor": begin + hub.page_size})
            headers["Link"] = f'<{hub.endpoint}{self.path.partition("?")[0]}?{following}>; rel="next"'
        self.answer(200, json.dumps(listed[begin : begin + hub.page_size]).encode(), **headers)

    def answer_file(self, names: list[str]) -> None:
        hub = self.server.hub
        revision, path = names[4], "/".join(names[5:])
        files = self.find(names, revision)
        if files is None:
            return
        if path not in files:
            self.answer(404, b"", X_Error_Code="EntryNotFound")
            return
        data, commit = files[path], hub.commit(names, revision)
        if len(data) < hub.large:
            self.answer_range(data, ETag=f'"{git_sha1(data)}"', X_Repo_Commit=commit)
            return
        sha256 = hashlib.sha256(data).hexdigest()
        hub.blobs[sha256] = data
        self.answer(302, b"", Location=f"{hub.bytes_endpoint}/{sha256}?ticket={hub.ticket}", X_Linked_Size=str(len(data)), X_Linked_Etag=f'"{sha256}"',
                    X_Repo_Commit=commit)


class BytesHandler(Handler):
    def do_GET(self) -> None:
        hub = self.server.hub
        with hub.lock:
            hub.byte_requests.append((self.command, self.path, dict(self.headers)))
            is_cut = hub.cut_after is not None and len(hub.byte_requests) > hub.cut_after
        path, _, query = self.path.partition("?")
        if query != f"ticket={hub.ticket}":
            self.answer(403, b"expired")
            return
        data = hub.blobs[path.strip("/")]
        self.most_sent = 100 if is_cut else None
        self.answer_range(bytes(byte ^ 1 for byte in data) if hub.lies else data)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # A killed client breaks its connections.
            super().handle_error(request, client_address)


class FakeHub:
    def __init__(self, root: pathlib.Path, token: str = "", is_gated: bool = False):
        self.root = pathlib.Path(root)
        self.token, self.is_gated = token, is_gated
        self.large = 1000  # Bytes, from which on a file lies on the second server.
        self.page_size = 1000
        self.ticket = 1
        self.cut_after: int | None = None  # Requests, after which the second server breaks every answer off.
        self.lies = False  # The second server sends other bytes.
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.byte_requests: list[tuple[str, str, dict[str, str]]] = []
        self.blobs: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.servers = [Server(("127.0.0.1", 0), handler) for handler in (HubHandler, BytesHandler)]
        for server in self.servers:
            server.hub = self
        self.endpoint, self.bytes_endpoint = (f"http://127.0.0.1:{server.server_port}" for server in self.servers)
        self.threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}) for server in self.servers]

    def __enter__(self) -> "FakeHub":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *unused) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()
        for thread in self.threads:
            thread.join()

    def revisions(self, repo: str) -> dict[str, dict[str, bytes]]:
        """Files by path, by branch and commit; nothing where there is no such repository."""
        found = {}
        for branch, folder in (("main", self.root / repo), ("refs/convert/parquet", self.root / (repo + ".parquet"))):
            if folder.is_dir():
                files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
                digest = hashlib.sha1(repr([(path, git_sha1(data)) for path, data in files.items()]).encode()).hexdigest()
                found[branch] = found[digest] = files
                self.__dict__.setdefault("commits", {})[(repo, branch)] = digest
        return found

    def commit(self, names: list[str], revision: str) -> str:
        return self.__dict__["commits"].get(("/".join(names[:3]), revision), revision)


def main() -> None:
    parser = argparse.ArgumentParser(description="A hub on loopback that serves a folder.")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--token", default="", help="that every request must bear")
    parser.add_argument("--gated", action="store_true", help="say of others that the repository is gated, not that there is none")
    parser.add_argument("--port-file", type=pathlib.Path, help="file to write the endpoint to, when the hub answers")
    arguments = parser.parse_args()
    with FakeHub(arguments.root, arguments.token, arguments.gated) as hub:
        print(hub.endpoint, flush=True)
        if arguments.port_file:
            arguments.port_file.write_text(hub.endpoint)
        threading.Event().wait()


if __name__ == "__main__":
    main()
