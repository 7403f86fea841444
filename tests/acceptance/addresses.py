#!/usr/bin/env python3
"""Acceptance 4: whatever a list of URLs names, no packet goes to loopback, metadata, private or link-local addresses or to other ports.

A network namespace has all those addresses on its own loopback device, a web server and a resolver at public ones, and a capture of every
packet. The resolver changes its answers; the web server redirects to everything that the list names, over up to five hops.
"""

import json
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from harness import PROGRAM, Trials, darkroom, heads_of_requests, require, run_in_namespace

WEB, RESOLVER = "93.184.216.34", "8.8.8.8"
CANARIES_4 = ["127.0.0.1", "127.255.255.254", "169.254.169.254", "169.254.170.2", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "192.0.2.1"]
CANARIES_6 = ["::1", "fd00::1", "fd00:ec2::254", "fe80::1"]
CANARY_NETWORKS_4 = [("127.0.0.0", 8), ("169.254.0.0", 16), ("10.0.0.0", 8), ("172.16.0.0", 12), ("192.168.0.0", 16), ("100.64.0.0", 10), ("198.18.0.0", 15), ("192.0.2.0", 24), ("0.0.0.0", 8)]
PROOFS = [(socket.AF_INET, "10.0.0.1"), (socket.AF_INET6, "fd00::1")]
NUM_CONTROLS = 20
NUM_CASES = 500


def forms_4(address: str) -> list[str]:
    """Ways to write an IPv4 address that some reader takes for it."""
    a, b, c, d = map(int, address.split("."))
    whole = struct.unpack(">I", socket.inet_aton(address))[0]
    return [
        address, address + ".", f"{whole}", f"0x{whole:08x}", f"0{whole:o}", f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"{a}.{b}.{c * 256 + d}", f"{a}.{b * 65536 + c * 256 + d}",
        f"[::ffff:{address}]", f"[::ffff:{whole >> 16:x}:{whole & 0xFFFF:x}]", f"[64:ff9b::{whole >> 16:x}:{whole & 0xFFFF:x}]", f"[2002:{whole >> 16:x}:{whole & 0xFFFF:x}::1]", f"[::{address}]",
        f"{a:03d}.{b:03d}.{c:03d}.{d:03d}", "".join(chr(0xFF10 + int(digit)) if digit.isdigit() else "。" for digit in address),
    ]


def hosts() -> list[str]:
    found = [form for address in CANARIES_4 for form in forms_4(address)] + [f"[{address}]" for address in CANARIES_6]
    return found + ["localhost", "localhost.", "LOCALHOST", "0", "0.0.0.0", "[::]", "[fe80::1%25lo]", "ip6-localhost", "metadata.google.internal", "host.docker.internal"]


class Names:
    """What the resolver answers: a list of addresses for each query of a name, the last one for ever."""

    def __init__(self):
        self.answers: dict[str, list[list[str]]] = {"public.test": [[WEB]]}
        self.asked: dict[tuple[str, int], int] = {}

    def add(self, kind: str, number: int, answers: list[list[str]]) -> str:
        name = f"{kind}-{number}.test"
        self.answers[name] = answers
        return name

    def answer(self, name: str, kind: int) -> list[str]:
        count = self.asked.get((name, kind), 0)
        self.asked[(name, kind)] = count + 1
        sequence = self.answers.get(name.lower().rstrip("."), [[]])
        return [address for address in sequence[min(count, len(sequence) - 1)] if (":" in address) == (kind == 28)]


def serve_names(names: Names, listener: socket.socket) -> None:
    while True:
        query, client = listener.recvfrom(4096)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
            at += 1 + query[at]
        kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
        found = names.answer(".".join(labels), kind)
        records = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, 16 if kind == 28 else 4) + socket.inet_pton(socket.AF_INET6 if kind == 28 else socket.AF_INET, address) for address in found)
        listener.sendto(query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(found), 0, 0) + query[12 : at + 5] + records, client)


def serve_web(listener: socket.socket, picture: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        with connection:
            for head in heads_of_requests(connection):
                path = head.split(b" ")[1].decode("latin-1")
                if path.startswith("/r/"):  # /r/HOPS/TARGET IN HEX
                    _, _, hops, target = path.split("/")
                    location = bytes.fromhex(target) if hops == "1" else f"/r/{int(hops) - 1}/{target}".encode()
                    connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n")
                else:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n" % len(picture) + picture)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


class Capture:
    """Every packet of the loopback device that goes where none may."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.socket.bind(("lo", 0))
        self.forbidden: list[str] = []
        self.num_packets = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        while True:
            packet = self.socket.recv(65_536)
            self.num_packets += 1
            kind = packet[12:14]
            if kind == b"\x08\x00":
                self.judge_4(packet[14:])
            elif kind == b"\x86\xdd" and packet[20] in (6, 17):  # TCP, UDP
                self.forbidden.append("[" + socket.inet_ntop(socket.AF_INET6, packet[38:54]) + "]")

    def sees(self, family: int, address: str) -> bool:
        """Whether it sees a packet of ours to a canary."""
        count = len(self.forbidden)
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", (address, 9))
        deadline = time.monotonic() + 30
        while not any(address in seen for seen in self.forbidden[count:]) and time.monotonic() < deadline:
            time.sleep(0.01)
        return any(address in seen for seen in self.forbidden[count:])

    def judge_4(self, packet: bytes) -> None:
        ends = packet[12:16], packet[16:20]
        header = (packet[0] & 15) * 4
        ports = struct.unpack(">HH", packet[header : header + 4]) if packet[9] in (6, 17) else (0, 0)
        for end in ends:
            whole = struct.unpack(">I", end)[0]
            for network, bits in CANARY_NETWORKS_4:
                if whole >> (32 - bits) == struct.unpack(">I", socket.inet_aton(network))[0] >> (32 - bits):
                    self.forbidden.append(socket.inet_ntoa(packet[16:20]) + f":{ports[1]}")
        allowed = {(WEB, 80), (WEB, 443), (RESOLVER, 53)}
        names = {(socket.inet_ntoa(ends[0]), ports[0]), (socket.inet_ntoa(ends[1]), ports[1])}
        if packet[9] in (6, 17) and not names & allowed:
            self.forbidden.append(socket.inet_ntoa(ends[1]) + f":{ports[1]}")


def make_cases(names: Names) -> list[str]:
    urls = [f"http://{host}/latest/meta-data/" for host in hosts()]
    canaries = CANARIES_4 + CANARIES_6
    for number, canary in enumerate(canaries):
        urls.append(f"http://{names.add('private', number, [[canary]])}/")
        urls.append(f"http://{names.add('mixed', number, [[WEB, canary], [canary]])}/")
        urls.append(f"http://{WEB}@{canary if ':' not in canary else f'[{canary}]'}/")
        urls.append(f"http://user:password@{canary if ':' not in canary else f'[{canary}]'}/")
        urls.append(f"http://{canary if ':' not in canary else f'[{canary}]'}#@{WEB}/")
        for again in range(4):
            changing = names.add("rebind", number * 10 + again, [[WEB], [canary], [canary]])
            urls += [f"http://{changing}/{again}.png", f"http://{WEB}/r/{again + 1}/{f'http://{changing}/'.encode().hex()}"]
    for port in (1, 22, 25, 53, 110, 143, 3306, 5432, 6379, 8080, 8443, 9200, 11211, 27017, 65535):
        urls += [f"http://{WEB}:{port}/", f"http://{WEB}/r/2/{f'http://{WEB}:{port}/'.encode().hex()}"]
    for other in ("file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:25/", "dict://127.0.0.1:11211/", "data:image/png;base64,aaaa", "//127.0.0.1/", "http:/127.0.0.1/", "http:127.0.0.1", "jar:http://127.0.0.1!/", "http://", "http:///x", "http://127.0.0.1:80:80/", "http://[::1", "\\\\127.0.0.1\\x", "http:\\\\127.0.0.1\\"):
        urls += [other, f"http://{WEB}/r/1/{other.encode().hex()}"]
    targets = [f"http://{host}/" for host in hosts() if host.isascii()]
    for number, target in enumerate(targets):
        urls.append(f"http://{WEB}/r/{number % 5 + 1}/{target.encode().hex()}")
    return urls


def prepare_namespace(folder: pathlib.Path) -> list[str]:
    """The canaries that this kernel does not let be there: all of IPv6 where there is none."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in [WEB, RESOLVER, *CANARIES_4[2:]]:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    has_ipv6 = pathlib.Path("/proc/sys/net/ipv6/conf/lo").exists() and pathlib.Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6").read_text().strip() == "0"
    for address in CANARIES_6[1:] if has_ipv6 else []:
        subprocess.run(["ip", "-6", "address", "add", f"{address}/128", "dev", "lo", "nodad"], check=True)
    for name, text in (("resolv.conf", f"nameserver {RESOLVER}\n"), ("hosts", "127.0.0.1 localhost\n::1 ip6-localhost\n")):
        (folder / name).write_text(text)
        subprocess.run(["mount", "--bind", str(folder / name), f"/etc/{name}"], check=True)
    return [] if has_ipv6 else CANARIES_6


def listen(kind: int, place: tuple) -> socket.socket:
    listener = socket.socket(socket.AF_INET, kind)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(place)
    return listener


def run_inside() -> dict:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from hostile_test import png  # Of tests/integration.

    with tempfile.TemporaryDirectory(prefix="darkroom-addresses-") as name:
        folder = pathlib.Path(name)
        absent = prepare_namespace(folder)
        names = Names()
        urls = make_cases(names)
        controls = [f"http://public.test/{i}.png" for i in range(NUM_CONTROLS)]
        threading.Thread(target=serve_names, args=(names, listen(socket.SOCK_DGRAM, (RESOLVER, 53))), daemon=True).start()
        web = listen(socket.SOCK_STREAM, (WEB, 80))
        web.listen(512)
        threading.Thread(target=serve_web, args=(web, png(64, 64)), daemon=True).start()
        capture = Capture()
        table = folder / "urls.jsonl"
        table.write_text("".join(json.dumps({"URL": url, "TEXT": "x"}) + "\n" for url in controls + urls), encoding="utf-8")
        done = darkroom("download", folder / "out", "--metadata", table, "--timeout", "8", "--retries", "0", "--max-park", "0", "--error-budget", "100", "--per-host", "256", "--json-summary",
                        folder / "summary.json", "--keep-failed", timeout=600)
        summary = json.loads((folder / "summary.json").read_text())["download"]
        forbidden = sorted(set(capture.forbidden))
        # The capture works: packets of our own to canaries are seen.
        unseen = [address for family, address in PROOFS if address not in absent and not capture.sees(family, address)]
        return {"cases": len(urls), "rows_in": summary["rows_in"], "rows_out": summary["rows_out"], "rows_by_error": summary["rows_by_error"], "forbidden": forbidden[:20], "packets": capture.num_packets,
                "absent": absent, "unseen": unseen, "log": done.stderr[-300:]}


def no_packet_reaches_a_forbidden_address(trials: Trials) -> None:
    found = run_in_namespace("addresses.py")
    trials.figures.update(cases=found["cases"], packets_at_canaries=len(found["forbidden"]), rows_by_error=found["rows_by_error"])
    if found["absent"]:  # URLs that name them were tried all the same.
        trials.figures["skipped_without_ipv6"] = found["absent"]
    require(not found["unseen"], "the capture does not see a packet at", found["unseen"])
    require(found["cases"] >= NUM_CASES, "too few cases", found["cases"])
    require(not found["forbidden"], "packets at", found["forbidden"])
    require(found["rows_in"] == found["cases"] + NUM_CONTROLS and found["rows_out"] >= NUM_CONTROLS, "rows", found)
    require(found["rows_out"] + sum(found["rows_by_error"].values()) == found["rows_in"], "rows without a fate", found)


CHECKS = [("addresses", no_packet_reaches_a_forbidden_address)]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps(run_inside()))
    else:
        sys.exit(f"run tests/acceptance/acceptance.py addresses ({PROGRAM})")
