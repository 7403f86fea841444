"""Writes tests/golden/stores/s3_signatures.json: requests to S3 with their AWS Signature Version 4, worked out apart from darkroom.

    python3 tools/goldens/make_s3_goldens.py tests/golden/stores/s3_signatures.json

Needs Python's own modules only: hmac, hashlib and urllib.parse.quote, put together as AWS's page "Signature Calculations for the
Authorization Header: Transferring Payload in a Single Chunk" says. The script first signs that page's four examples and stops where
a signature differs from the published one. With --botocore (1.44.5 was tried) every request is signed by botocore's S3SigV4Auth as
well, and a difference stops the script; what is written stays the same.
"""

import argparse
import hashlib
import hmac
import json
import random
from urllib.parse import quote

UNRESERVED = "-._~"  # Besides letters and digits, which quote never encodes.
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
DOC_KEYS = {"id": "AKIAIOSFODNN7EXAMPLE", "secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "token": ""}
HOSTILE = list("abzAZ059-._~/+=&?%#;:@!$'()*, \"<>[]{}|\\^`\t\n\x7f") + ["ä", "é", "中", "😀", "//", "/./", "/../", "%41", "%2F", "+%20"]


def encode(text: str, kept: str = "") -> str:
    return quote(text.encode(), safe=UNRESERVED + kept)


def canonical_request(case: dict) -> tuple[str, str]:
    query = sorted((encode(name), encode(value or "")) for name, value in case["query"])
    values: dict[str, list[str]] = {}
    for name, value in sent_headers(case):
        values.setdefault(name.lower(), []).append(" ".join(value.split()))
    names = ";".join(sorted(values))
    headers = "".join(f"{name}:{','.join(values[name])}\n" for name in sorted(values))
    query_text = "&".join(f"{name}={value}" for name, value in query)
    lines = (case["method"], encode(case["path"], "/"), query_text, headers, names, case["payload_hash"])
    return "\n".join(lines), names


def sent_headers(case: dict) -> list:
    added = [["host", case["host"]], ["x-amz-content-sha256", case["payload_hash"]], ["x-amz-date", case["date"]]]
    if case["keys"]["token"]:
        added.append(["x-amz-security-token", case["keys"]["token"]])
    return case["headers"] + added


def sign(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def authorization(case: dict) -> str:
    canonical, names = canonical_request(case)
    scope = f"{case['date'][:8]}/{case['region']}/s3/aws4_request"
    to_sign = "\n".join(("AWS4-HMAC-SHA256", case["date"], scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = ("AWS4" + case["keys"]["secret"]).encode()
    for step in scope.split("/"):
        key = sign(key, step)
    return f"AWS4-HMAC-SHA256 Credential={case['keys']['id']}/{scope}, SignedHeaders={names}, Signature={sign(key, to_sign).hex()}"


def target(case: dict) -> str:
    pairs = sorted((encode(name), encode(value or ""), value is not None) for name, value in case["query"])
    query = "&".join(name + ("=" + value if has_value else "") for name, value, has_value in pairs)
    return encode(case["path"], "/") + ("?" + query if query else "")


def documented(method: str, path: str, query: list, headers: list, body: bytes, signature: str) -> None:
    case = {
        "method": method, "host": "examplebucket.s3.amazonaws.com", "path": path, "query": query, "headers": headers,
        "payload_hash": hashlib.sha256(body).hexdigest(), "region": "us-east-1", "date": "20130524T000000Z", "keys": DOC_KEYS,
    }  # fmt: skip
    if not authorization(case).endswith("Signature=" + signature):
        raise SystemExit(f"differs from AWS's published signature: {method} {path} {query}")


def check_against_documentation() -> None:
    storage = [["date", "Fri, 24 May 2013 00:00:00 GMT"], ["x-amz-storage-class", "REDUCED_REDUNDANCY"]]
    documented("GET", "/test.txt", [], [["range", "bytes=0-9"]], b"", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")
    documented("PUT", "/test$file.text", [], storage, b"Welcome to Amazon S3.",
               "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd")  # fmt: skip
    documented("GET", "/", [["lifecycle", None]], [], b"", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")
    documented("GET", "/", [["prefix", "J"], ["max-keys", "2"]], [], b"", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")


def case(method: str, path: str, query: list, headers: list, payload_hash: str, token: str = "") -> dict:
    keys = {"id": "AKIDEXAMPLE", "secret": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "token": token}
    return {
        "method": method, "host": "127.0.0.1:9000", "path": path, "query": query, "headers": headers,
        "payload_hash": payload_hash, "region": "eu-central-1", "date": "20240229T235959Z", "keys": keys,
    }  # fmt: skip


def chosen_cases() -> list:
    own = [["x-amz-meta-darkroom-writer", "host-1  two   spaces "], ["if-none-match", "*"], ["content-type", "application/xml"]]
    return [
        case("POST", "/bucket/key", [["uploads", None]], own, "UNSIGNED-PAYLOAD"),
        case("POST", "/bucket/key", [["uploads", ""]], own, "UNSIGNED-PAYLOAD"),
        case("PUT", "/bucket/a+b=c&d%20e~f", [["uploadId", "a+b/c=="], ["partNumber", "10"]], [], hashlib.sha256(b"part").hexdigest()),
        case("GET", "/bucket//a//b/./../c/", [], [["range", "bytes=-65536"]], EMPTY_SHA256),
        case("GET", "/bucket", [["list-type", "2"], ["prefix", "ä/中 😀"], ["delimiter", "/"], ["encoding-type", "url"]], [], EMPTY_SHA256),
        case("GET", "/bucket", [["a", "1"], ["a-b", "2"], ["A", "3"], ["a", "0"], ["ä", ""], ["~", "~"], ["a=", "&"]], [], EMPTY_SHA256),
        case("HEAD", "/bucket/key", [], [["if-match", '"0123abcd"']], EMPTY_SHA256, token="FwoGZXIvYXdzE//////////wEaD+x/y=="),
        case("DELETE", "/bucket/key", [["uploadId", "1"]], [["x-b", "2"], ["x-a", "3"], ["x-b", " 1 "]], EMPTY_SHA256),
    ]


def random_cases(count: int) -> list:
    draw = random.Random(4)
    def text(most: int) -> str:  # noqa: E306
        return "".join(draw.choice(HOSTILE) for _ in range(draw.randrange(most)))
    cases = []
    for _ in range(count):
        query = [[text(6) or "q", draw.choice([text(12), None])] for _ in range(draw.randrange(5))]
        headers = [["x-amz-meta-" + name, "".join(draw.choice("ab 9+/=\"'") for _ in range(draw.randrange(20)))]
                   for name in draw.sample(("a", "b-c", "z9"), draw.randrange(4))]  # fmt: skip
        payload_hash = draw.choice(["UNSIGNED-PAYLOAD", EMPTY_SHA256, hashlib.sha256(text(9).encode()).hexdigest()])
        cases.append(case(draw.choice(["GET", "PUT", "POST", "HEAD", "DELETE"]), "/bucket/" + text(24), query, headers, payload_hash))
    return cases


def check_against_botocore(case: dict) -> None:
    import botocore
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest(case["method"], f"http://{case['host']}{target(case)}")
    request.context["timestamp"] = case["date"]
    for name, value in sent_headers(case):
        request.headers[name] = value
    keys = Credentials(case["keys"]["id"], case["keys"]["secret"], case["keys"]["token"] or None)
    signer = S3SigV4Auth(keys, "s3", case["region"])
    got = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    if not case["authorization"].endswith("Signature=" + got):
        raise SystemExit(f"botocore {botocore.__version__} signs otherwise: {case}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--botocore", action="store_true", help="compare with botocore as well")
    arguments = parser.parse_args()
    check_against_documentation()
    cases = chosen_cases() + random_cases(60)
    for one in cases:
        one["target"] = target(one)
        one["canonical_request"] = canonical_request(one)[0]
        one["authorization"] = authorization(one)
        if arguments.botocore:
            check_against_botocore(one)
    made_by = "tools/goldens/make_s3_goldens.py with Python's hmac and hashlib"
    with open(arguments.output, "w") as file:
        json.dump({"made_by": made_by, "cases": cases}, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
