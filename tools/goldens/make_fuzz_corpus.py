#!/usr/bin/env python3
"""Writes tests/fuzz/corpus: small inputs of each fuzz target (tests/fuzz/fuzz_targets.h), from which mutations are made.

    make_fuzz_corpus.py        needs Pillow and pyarrow

What a fuzzer finds is added by hand, with a name that says what it was; this script leaves such files alone.
"""

import hashlib
import io
import json
import pathlib
import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

OUT = pathlib.Path(__file__).parent.parent.parent / "tests/fuzz/corpus"

VERSION_1 = (
    '{"content_hash":"abc","identity":{"fields":{"algorithm_version":2},"inputs_sha256":"i","rows_per_file":5,"verb":"download","version":1},'
    '"input":{"first_row":5,"name":"urls.jsonl","num_rows":3},"invalid_captions":1,"item":1,"job":"j","rows_by_error":{"dns":1},"rows_in":3,"rows_out":2,"version":1}'
)
VERSION_2 = {
    "version": 2, "job": "j", "identity": {"verb": "download", "fields": {"a": 1}, "rows_per_file": 5, "version": 2}, "fingerprint": "f", "item": 42, "generation": 0,
    "considered": 4, "input": {"name": "sub/a.parquet", "size_bytes": 123, "tail_sha256": "t", "num_rows": 213, "list_row": 7}, "first_row": 205, "num_rows": 5,
    "rows_in": 3, "rows_out": 1, "rows_filtered": 1, "rows_by_error": {"dns": 2}, "failed_rows": {"dns": "AAM="}, "invalid_captions": 6, "unported_captions": 8,
}


def pictures() -> dict[str, bytes]:
    ramp = Image.linear_gradient("L").resize((24, 16)).convert("RGB")
    made = {}
    forms = {
        "a.jpg": (ramp, {}), "progressive.jpg": (ramp, {"progressive": True}), "grey.jpg": (ramp.convert("L"), {}), "cmyk.jpg": (ramp.convert("CMYK"), {}), "restarts.jpg": (ramp, {"restart_marker_blocks": 1}),
        "a.png": (ramp, {}), "palette.png": (ramp.convert("P"), {}), "alpha.png": (ramp.convert("RGBA"), {}), "grey16.png": (ramp.convert("L").convert("I;16"), {}), "bits.png": (ramp.convert("1"), {}),
        "a.webp": (ramp, {}), "lossless.webp": (ramp, {"lossless": True}), "a.gif": (ramp, {}),
    }
    for name, (picture, options) in forms.items():
        out = io.BytesIO()
        picture.save(out, {"jpg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF"}[name.split(".")[1]], **options)
        made[name] = out.getvalue()
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    ramp.save(turned, "JPEG", exif=exif.tobytes())
    made["turned.jpg"] = turned.getvalue()
    for name, kind in (("turned.png", "PNG"), ("turned.webp", "WEBP")):
        out = io.BytesIO()
        ramp.save(out, kind, exif=exif.tobytes())
        made[name] = out.getvalue()
    made["frames.webp"] = frames("WEBP")
    made["avif-head"] = struct.pack(">I", 28) + b"ftypavif\0\0\0\0avifmif1miaf"
    body = zlib.compress(b"".join(b"\0" + bytes(8) for _ in range(8)))
    made["adam7.png"] = b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in ((b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 1)), (b"IDAT", body), (b"IEND", b"")))
    return made


def frames(kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 0, 0)).save(out, kind, save_all=True, append_images=[Image.new("RGB", (8, 8), (0, 200, 0))])
    return out.getvalue()


def parquet(table: pa.Table, pairs: dict[str, str] | None = None, **options) -> bytes:
    out = io.BytesIO()
    with pq.ParquetWriter(out, table.schema, **options) as writer:
        writer.write_table(table)
        if pairs:
            writer.add_key_value_metadata(pairs)
    return out.getvalue()


def sealed(data: bytes) -> bytes:
    """With the footer's own hash in the place of its 64 zeros, as docs/formats/commit.md says."""
    num_bytes = struct.unpack("<I", data[-8:-4])[0]
    footer = data[-8 - num_bytes : -8]
    return data[: -8 - num_bytes] + footer.replace(b"0" * 64, hashlib.sha256(footer).hexdigest().encode()) + data[-8:]


def footers() -> dict[str, bytes]:
    table = pa.table({"key": ["0", "1", None], "width": pa.array([1, None, 3], pa.int32()), "image": pa.array([b"a", b"", None], pa.binary())})
    nested = pa.table({"tags": pa.array([["a"], [], None]), "place": pa.array([{"x": 1.5}, None, {"x": None}])})
    part = {"darkroom.shard": json.dumps(VERSION_2), "darkroom.footer_sha256": "0" * 64}
    return {
        "plain.parquet": parquet(table), "empty.parquet": parquet(table.slice(0, 0)), "zstd.parquet": parquet(table, compression="zstd"), "nested.parquet": parquet(nested),
        "no-arrow.parquet": parquet(table, store_schema=False), "unsealed.parquet": parquet(table, {"darkroom.shard": VERSION_1}), "part.parquet": sealed(parquet(table, part)),
        "version1.parquet": parquet(table, version="1.0", data_page_version="1.0"),
    }


ROBOTS = {
    "plain": "/a/b.png\nUser-agent: *\nDisallow: /a\nAllow: /a/b\n",
    "groups": "/x?y=1\nUser-agent: other\nDisallow: /\n\nUser-agent: Darkroom/1.0\nuser-agent: darkroom\nAllow: /x?y=1$\nDisallow: /*?*\nCrawl-delay: 3\nSitemap: http://a/b\n",
    "stars": "/aaaa/%2Fb%41\nUser-agent: *\nDisallow: /*a*a*%2F*$\nAllow: *\nDisallow:\n",
    "signals": "train-ai=n, search=y\nUser-agent: *\nContent-Usage: /p train-ai=n\nContent-Signal: search=yes, ai-train=no\nContent-Usage: train-genai=y;x=1\n",
    "breaks": "/\n\ufeffUser-agent:*\rDisallow:/a\r\nAllow : /a#b\nno rule\nUSER-AGENT: *\n# only\nDisallow: /\u00e4 # all\n",
    "tags": "darkroom: noai, other: noimageai, unavailable_after: 25 Jun\nUser-agent: *\nDisallow: /\n",
}
URLS = {
    "plain": "http://example.com/a.png\n/b.png",
    "relative": "https://example.com:8080/a/b/c?d=e#f\n../../g/./h?i",
    "numbers": "http://0x7f.1/a\n//2130706433/b",
    "six": "http://[::ffff:10.0.0.1]:80/\nhttp://[fe80::1%25eth0]/",
    "names": "http://B\u00fccher.example./\u00e4 b\nhttps://xn--bcher-kva.example/%zz%",
    "user": "http://a:b@example.com/\nhttp://user@example.com@other/",
    "scheme": "file:///etc/passwd\ngopher://x",
    "odd": "http:\\\\example.com\\a\t b\nhttp:////x//..//.",
    "query": "https://example.com?a=b c&d=%20+%2b\n?x#y",
    "s3": "s3://bucket/key?region=eu-west-1&endpoint_override=localhost:9000\n",
    "hf": "hf://datasets/a/b@main/data/*.parquet?config=x\n",
    "local": "file:///tmp/a%20b%2Fc.csv\n",
}
JSONS = {
    "document": '{"a":[1,-2.5e10,null,true,"\\u00e4\\ud83d\\ude00"],"b":{"c":{}}}',
    "rows": '{"URL":"http://a/b","TEXT":"c","n":1}\n{"URL":"d","extra":[1,{"x":2}]}\n\n{"TEXT":null}\n',
    "damaged": '{"URL":"a"}\nno json\n[1,2]\n{"URL":"b"\n{"URL":"\xed"}\n',
    "deep": "[" * 60 + "1" + "]" * 60,
    "csv": 'URL,TEXT,"a ""b"""\r\nhttp://a,"x,\ny",1\n,,\nshort\n1,2,3,4\n',
    "tsv": 'URL\tTEXT\nhttp://a\t"x\nb\t\n',
    "marks": '\ufeff{"a":1}\n{"a":1e999}\n{"a":12345678901234567890123}\n{"a":"b","a":"c"}',
}
WHERES = {
    "plain": "punsafe < 0.1 AND n >= 512",
    "forms": "NOT (x LIKE 'a\\%%' OR x IN ('a', 'b''c')) AND \"n\" IS NOT NULL AND b",
    "numbers": "n <> -9223372036854775808 OR f = 1e-320 OR 0.1 = f OR n IN (1, 2.5, 18446744073709551615)",
    "truth": "TRUE AND NOT FALSE OR b = TRUE OR b != FALSE",
    "texts": "x = 'it''s' OR x NOT LIKE '%_' OR x NOT IN ('') OR 'a' < x",
    "nested": "(((NOT NOT (n = 1))))",
    "columns": 'x = "b" OR f <= n OR n == 1',
    "nothing": "x IS NULL AND n IS NULL OR f IS NOT NULL",
}

HOST = "Host: a\r\n"
POST = "POST /invocations HTTP/1.1\r\n" + HOST
CHUNKED = "Transfer-Encoding: chunked\r\n"
SMUGGLED = "GET /smuggled HTTP/1.1\r\n" + HOST + "\r\n"
REQUESTS = {
    "get": "GET /v1/models?limit=2&after=a%20b HTTP/1.1\r\n" + HOST + "Authorization: Bearer key\r\nAccept: */*\r\n\r\n",
    "old": "GET /ping HTTP/1.0\r\n\r\n",
    "kept-old": "GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + SMUGGLED,
    "length": POST + "Content-Type: application/json\r\nContent-Length: 14\r\n\r\n" + '{"prompt":"a"}',
    "two": POST + "Content-Length: 2\r\n\r\n{}" + SMUGGLED + POST + "Content-Length: 0\r\n\r\n",
    "closing": POST + "Connection: close\r\nContent-Length: 2\r\n\r\n{}" + SMUGGLED,
    "chunked": POST + CHUNKED + '\r\nE\r\n{"prompt":"a"}\r\n0\r\n\r\n' + SMUGGLED,
    "chunks": POST + CHUNKED + "Trailer: X\r\n\r\n1;a=b\r\n{\r\n001\r\n}\r\n0\r\nX: y\r\nContent-Length: 5\r\n\r\n" + SMUGGLED,
    "length-and-chunks": POST + "Content-Length: 6\r\n" + CHUNKED + "\r\n0\r\n\r\nG" + SMUGGLED,
    "chunks-and-length": POST + CHUNKED + "Content-Length: 6\r\n\r\n0\r\n\r\nG" + SMUGGLED,
    "two-lengths": POST + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "other-lengths": POST + "Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + SMUGGLED,
    "list-of-lengths": POST + "Content-Length: 2, 2\r\n\r\n{}",
    "signed-length": POST + "Content-Length: +2\r\n\r\n{}",
    "hex-length": POST + "Content-Length: 0x2\r\n\r\n{}",
    "long-length": POST + "Content-Length: 18446744073709551618\r\n\r\n{}",
    "two-codings": POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding-twice": POST + CHUNKED + CHUNKED + "\r\n0\r\n\r\n" + SMUGGLED,
    "other-coding": POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "coding-of-old": "POST / HTTP/1.0\r\n" + CHUNKED + "\r\n0\r\n\r\n" + SMUGGLED,
    "blank-before-colon": POST + "Content-Length : 2\r\n\r\n{}",
    "tab-coding": POST + "Transfer-Encoding:\tchunked \r\n\r\n0\r\n\r\n" + SMUGGLED,
    "folded": POST + "Content-Length:\r\n 2\r\nX: a\r\n\tb\r\n\r\n{}" + SMUGGLED,
    "bare-line-ends": "POST / HTTP/1.1\nHost: a\nContent-Length: 2\n\n{}" + SMUGGLED,
    "bare-return": POST + "X: a\rContent-Length: 2\r\n\r\n{}",
    "signed-chunk": POST + CHUNKED + "\r\n+2\r\n{}\r\n0\r\n\r\n",
    "long-chunk": POST + CHUNKED + "\r\nFFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n",
    "chunk-line-end": POST + CHUNKED + "\r\n2\n{}\n0\n\n" + SMUGGLED,
    "chunk-too-long": POST + CHUNKED + "\r\n2\r\n{}X\r\n0\r\n\r\n" + SMUGGLED,
    "two-hosts": "GET / HTTP/1.1\r\n" + HOST + "Host: b\r\n\r\n",
    "no-host": "GET / HTTP/1.1\r\n\r\n",
    "absolute": "GET http://b/ HTTP/1.1\r\n" + HOST + "\r\n",
    "star": "OPTIONS * HTTP/1.1\r\n" + HOST + "\r\n",
    "line-before": "\r\n" + SMUGGLED,
    "expects": POST + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    "long-head": "GET / HTTP/1.1\r\n" + HOST + "X: " + "a" * 5000 + "\r\n\r\n",
    "long-body": POST + "Content-Length: 9000\r\n\r\n" + "a" * 9000,
    "long-chunks": POST + CHUNKED + "\r\n" + ("1000\r\n" + "a" * 4096 + "\r\n") * 3 + "0\r\n\r\n",
    "upgrade": "GET / HTTP/1.1\r\n" + HOST + "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + SMUGGLED,
    "http2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": b"\x16\x03\x01\x00\xf4\x01\x00",
}


def write(target: str, files: dict[str, bytes | str]) -> None:
    folder = OUT / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))


def main() -> None:
    made = pictures()
    write("picture", made)
    write("probe", {name: data[:400] for name, data in made.items()})
    write("footer", footers())
    write("record", {"version-1": VERSION_1, "version-2": json.dumps(VERSION_2), "compact": json.dumps(VERSION_2, separators=(",", ":"), sort_keys=True), "later": json.dumps({**VERSION_2, "version": 3}), "beyond-its-type": json.dumps({**VERSION_2, "version": 1e49}), "none": "[]"})
    write("robots", ROBOTS)
    write("url", URLS)
    write("json", JSONS)
    write("where", WHERES)
    write("request", REQUESTS)


if __name__ == "__main__":
    main()
