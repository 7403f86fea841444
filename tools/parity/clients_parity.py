#!/usr/bin/env python3
"""Asks `darkroom serve` with the clients that its protocols are for, unchanged, and compares their pictures with those of `darkroom sample`.

  clients_parity.py --darkroom build/darkroom --model models/tiny

Clients: boto3's sagemaker-runtime, openai (streams and edits, too), huggingface_hub's InferenceClient (text to image, image to image),
tritonclient's health and metadata calls, webuiapi (text to image, image to image, settings in PNGs, options, progress), curl;
openapi-spec-validator reads the OpenAPI document.
Runs in .venv-clients (requirements/clients.txt). SageMaker's own front end, which maps /endpoints/NAME/invocations to /invocations, is played
by a small proxy; the clients' calls are as their manuals have them. A client that is not installed is named and counts as a difference. Exits
1 on a difference.
"""
import argparse
import base64
import contextlib
import http.client
import http.server
import io
import json
import re
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

PROMPT = "red apple"
SEED = 3
STEPS = 6
STRENGTH = 0.5
KEY = "a-key-of-more-than-16-characters"
PATIENCE = 120  # Seconds; a limit, no measure.


def input_picture() -> bytes:
    """A PNG to start from, of another shape than what is painted."""
    down, across = np.mgrid[0:60, 0:100]
    file = io.BytesIO()
    Image.fromarray(np.stack([across * 2, down * 4, across + down], axis=2).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def pixels(picture: bytes | Image.Image) -> np.ndarray:
    opened = Image.open(io.BytesIO(picture)) if isinstance(picture, bytes) else picture
    return np.asarray(opened.convert("RGB")).astype(np.int32)


@contextlib.contextmanager
def served(program: str, model: str) -> Iterator[int]:
    """The port of a server that wants a key."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write(KEY + "\n")
        keys.flush()
        process = subprocess.Popen([program, "serve", model, "--port", "0", "--threads", "1", "--keys", keys.name], stderr=subprocess.PIPE, text=True)
        try:
            for line in process.stderr:
                if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                    threading.Thread(target=process.stderr.read, daemon=True).start()
                    yield int(found[1])
                    return
            sys.exit("clients_parity: the server did not start")
        finally:
            process.terminate()
            process.wait(PATIENCE)


def event_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """A message of application/vnd.amazon.eventstream: lengths, their CRC, headers of texts, payload, the whole's CRC."""
    names = b"".join(bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode() for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(names) + len(payload), len(names))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + names + payload
    return message + struct.pack(">I", zlib.crc32(message))


@contextlib.contextmanager
def front_end(port: int) -> Iterator[int]:
    """What SageMaker puts before a container: paths of endpoints become the container's, most headers stay outside, and a reply that is asked
    for as a stream comes piece by piece, framed as AWS' event streams are."""

    class Platform(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            names = {"Content-Type": "Content-Type", "Accept": "Accept", "X-Amzn-SageMaker-Accept": "Accept"}  # The last is that of streams.
            kept = {inner: self.headers[outer] for outer, inner in names.items() if outer in self.headers}
            container = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            path = re.sub(r"^/endpoints/[^/]+", "", self.path)
            is_stream = path == "/invocations-response-stream"
            container.request("POST", "/invocations" if is_stream else path, body, {**kept, "Authorization": f"Bearer {KEY}", "X-Amzn-SageMaker-Custom-Attributes": "a=1"})
            reply = container.getresponse()
            if is_stream and reply.status < 400:
                self.send_pieces(reply)
                return
            text = reply.read()
            if reply.status >= 400:  # As the API says a container's error.
                text = json.dumps({"Message": "the model said", "OriginalStatusCode": reply.status, "OriginalMessage": text.decode()}).encode()
            self.send_response(200 if reply.status < 400 else 424)
            self.send_header("Content-Type", reply.getheader("Content-Type"))
            self.send_header("Content-Length", str(len(text)))
            if reply.status >= 400:
                self.send_header("x-amzn-errortype", "ModelError")
            self.end_headers()
            self.wfile.write(text)

        def send_pieces(self, reply: http.client.HTTPResponse) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.amazon.eventstream")
            self.send_header("X-Amzn-SageMaker-Content-Type", reply.getheader("Content-Type"))
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            while piece := reply.read1(1 << 16):
                self.wfile.write(event_frame({":message-type": "event", ":event-type": "PayloadPart", ":content-type": "application/octet-stream"}, piece))
                self.wfile.flush()

        def log_message(self, *unused: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Platform)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


def ask_boto3(port: int) -> np.ndarray:
    import boto3
    import botocore.exceptions

    with front_end(port) as platform:
        runtime = boto3.client(
            "sagemaker-runtime", endpoint_url=f"http://127.0.0.1:{platform}", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
        fields = {"prompt": PROMPT, "num_inference_steps": STEPS, "seed": SEED}
        reply = runtime.invoke_endpoint(EndpointName="tiny", ContentType="application/json", Accept="application/json;png", Body=json.dumps(fields))
        picture = pixels(base64.b64decode(json.loads(reply["Body"].read())["generated_images"][0]))
        arrays = json.loads(runtime.invoke_endpoint(EndpointName="tiny", ContentType="application/json", Body=json.dumps(fields))["Body"].read())
        assert np.array_equal(np.asarray(arrays["generated_images"][0]), picture), "nested arrays hold another picture"
        try:
            runtime.invoke_endpoint(EndpointName="tiny", ContentType="application/json", Body=json.dumps({**fields, "num_inference_steps": 0}))
            raise AssertionError("a bad request was served")
        except botocore.exceptions.ClientError as error:
            assert error.response["OriginalStatusCode"] == 400 and "num_inference_steps" in error.response["OriginalMessage"], error.response
        plain = json.loads(runtime.invoke_endpoint(EndpointName="tiny", ContentType="application/json", Body=json.dumps({"inputs": PROMPT, "parameters": {"num_inference_steps": STEPS, "seed": SEED}}))["Body"].read())
        assert np.array_equal(pixels(base64.b64decode(plain["generated_images"][0])), picture), "inputs without Accept"
        text = json.loads(runtime.invoke_endpoint(EndpointName="tiny", ContentType="application/x-text", Accept="application/json;jpeg", Body=PROMPT.encode())["Body"].read())
        assert Image.open(io.BytesIO(base64.b64decode(text["generated_image"]))).format == "JPEG", "a prompt alone"
        check_stream(runtime, fields, picture)
    return picture


def check_stream(runtime: object, fields: dict, picture: np.ndarray) -> None:
    """Asks for the events of a picture and reads them with botocore's own parser of event streams."""
    import botocore.exceptions

    asked = {"EndpointName": "tiny", "ContentType": "application/json", "Accept": "text/event-stream"}
    reply = runtime.invoke_endpoint_with_response_stream(**asked, Body=json.dumps({**fields, "preview_every": 2}))
    assert reply["ContentType"] == "text/event-stream", reply["ContentType"]
    pieces = [event["PayloadPart"]["Bytes"] for event in reply["Body"]]
    events = re.findall(r"^event: (.*)\ndata: (.*)\n\n", b"".join(pieces).decode(), re.MULTILINE)
    assert len(pieces) > 1 and events[-1][0] == "done", ([len(piece) for piece in pieces], [name for name, _ in events])
    assert np.array_equal(pixels(base64.b64decode(json.loads(events[-1][1])["generated_images"][0])), picture), "the streamed picture is another one"
    try:
        runtime.invoke_endpoint_with_response_stream(**asked, Body=json.dumps({**fields, "num_inference_steps": 0}))
        raise AssertionError("a bad request was streamed")
    except botocore.exceptions.ClientError as error:
        assert error.response["OriginalStatusCode"] == 400, error.response


def ask_openai(port: int) -> np.ndarray:
    import openai

    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0)
    fields = {"seed": SEED, "steps": STEPS}
    events = list(client.images.generate(model="tiny", prompt=PROMPT, size="64x64", stream=True, partial_images=2, extra_body=fields))
    partial, completed = events[:-1], events[-1]
    assert completed.type == "image_generation.completed" and completed.size == "64x64", completed.type
    assert [event.partial_image_index for event in partial] == list(range(len(partial))), partial
    for event in partial:
        assert event.type == "image_generation.partial_image" and pixels(base64.b64decode(event.b64_json)).shape == (64, 64, 3), event.type
    assert [model.id for model in client.models.list()] == ["tiny"], "models"
    reply = client.images.generate(model="tiny", prompt=PROMPT, n=1, size="64x64", extra_body=fields)
    assert completed.b64_json == reply.data[0].b64_json, "the streamed picture is another one"
    try:
        client.images.generate(model="dall-e-3", prompt=PROMPT)
        raise AssertionError("another model was served")
    except openai.NotFoundError as error:
        assert "dall-e-3" in error.message, error.message
    try:
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="another", max_retries=0).models.list()
        raise AssertionError("a wrong key was served")
    except openai.AuthenticationError:
        pass
    return pixels(base64.b64decode(reply.data[0].b64_json))


def ask_huggingface_hub(port: int) -> np.ndarray:
    import huggingface_hub

    client = huggingface_hub.InferenceClient(model=f"http://127.0.0.1:{port}", token=KEY)
    return pixels(client.text_to_image(PROMPT, num_inference_steps=STEPS, seed=SEED, width=64, height=64))


def ask_huggingface_hub_from_a_picture(port: int) -> np.ndarray:
    import huggingface_hub

    client = huggingface_hub.InferenceClient(model=f"http://127.0.0.1:{port}", token=KEY)
    sides = huggingface_hub.ImageToImageTargetSize(width=64, height=64)
    common = {"prompt": PROMPT, "num_inference_steps": STEPS, "seed": SEED, "target_size": sides}
    try:
        client.image_to_image(b"no picture", **common)
        raise AssertionError("what is no picture was served")
    except huggingface_hub.errors.HfHubHTTPError as error:
        assert error.response.status_code == 400, error
    return pixels(client.image_to_image(input_picture(), strength=STRENGTH, **common))


def ask_openai_edits(port: int) -> np.ndarray:
    import openai

    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0)
    ours = {"seed": SEED, "steps": STEPS, "strength": STRENGTH}
    reply = client.images.edit(model="tiny", image=io.BytesIO(input_picture()), prompt=PROMPT, n=1, size="64x64", extra_body=ours)
    try:
        client.images.edit(model="tiny", image=io.BytesIO(input_picture()), mask=io.BytesIO(input_picture()), prompt=PROMPT)
        raise AssertionError("a mask was served")
    except openai.BadRequestError as error:
        assert "mask" in error.message, error.message
    try:
        client.images.edit(model="tiny", image=io.BytesIO(b"no picture"), prompt=PROMPT)
        raise AssertionError("what is no picture was served")
    except openai.BadRequestError as error:
        assert "image" in error.message, error.message
    return pixels(base64.b64decode(reply.data[0].b64_json))


def ask_webuiapi(port: int) -> np.ndarray:
    import webuiapi

    api = webuiapi.WebUIApi(host="127.0.0.1", port=port, username="anybody", password=KEY)
    api.util_wait_for_ready()
    assert api.util_get_model_names() == ["tiny"] and api.util_get_current_model() == "tiny", "models"
    assert {"Euler a", "DPM++ 2M", "DDIM"} <= set(api.util_get_sampler_names()), api.util_get_sampler_names()
    assert "karras" in api.util_get_scheduler_names(), api.util_get_scheduler_names()
    api.util_set_model("tiny")
    assert api.interrupt() == {} and api.skip() == {}, "nothing to interrupt"
    assert api.get_cmd_flags()["api"] is True and "ram" in api.get_memory(), "flags, memory"
    common = {"prompt": PROMPT, "seed": SEED, "steps": STEPS, "cfg_scale": 7.5, "width": 64, "height": 64}
    result = api.txt2img(sampler_name="PLMS", **common)
    assert result.info["all_seeds"] == [SEED] and result.parameters["steps"] == STEPS, result.info
    settings = api.png_info(result.image)
    assert settings.info == result.info["infotexts"][0] and settings.parameters["Seed"] == str(SEED), settings
    try:
        api.txt2img(enable_hr=True, **common)
        raise AssertionError("a second pass was served")
    except RuntimeError as error:
        assert error.args[0] == 400 and "enable_hr" in error.args[1], error
    return pixels(result.image)


def ask_webuiapi_from_a_picture(port: int) -> np.ndarray:
    import webuiapi

    api = webuiapi.WebUIApi(host="127.0.0.1", port=port, username="anybody", password=KEY)
    picture = Image.open(io.BytesIO(input_picture()))
    common = {"prompt": PROMPT, "seed": SEED, "steps": STEPS, "cfg_scale": 7.5, "width": 64, "height": 64}
    result = api.img2img(images=[picture], sampler_name="PLMS", denoising_strength=STRENGTH, **common)
    try:
        api.img2img(images=[picture], mask_image=picture, **common)
        raise AssertionError("a mask was served")
    except RuntimeError as error:
        assert error.args[0] == 400 and "mask" in error.args[1], error
    return pixels(result.image)


def ask_tritonclient(port: int) -> None:
    import tritonclient.http

    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}")
    assert client.is_server_live(), "live"
    headers = {"Authorization": f"Bearer {KEY}"}
    assert client.is_server_ready(headers=headers), "ready"
    assert client.is_model_ready("tiny", headers=headers) and not client.is_model_ready("another", headers=headers), "model ready"
    assert client.get_server_metadata(headers=headers)["name"] == "darkroom", "server metadata"
    assert client.get_model_metadata("tiny", headers=headers)["name"] == "tiny", "model metadata"


def ask_openapi_spec_validator(port: int) -> None:
    import openapi_spec_validator

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/openapi.json", headers={"Authorization": f"Bearer {KEY}"})
    document = json.loads(connection.getresponse().read())
    openapi_spec_validator.validate(document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)


def ask_curl(port: int) -> np.ndarray:
    fields = json.dumps({"prompt": PROMPT, "num_inference_steps": STEPS, "seed": SEED})
    words = ["-H", "Content-Type: application/json", "-H", "Accept: image/png", "-H", f"Authorization: Bearer {KEY}", "-d", fields]
    return pixels(subprocess.run(["curl", "-sf", *words, f"http://127.0.0.1:{port}/invocations"], capture_output=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--darkroom", required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.png").write_bytes(input_picture())
        flags = ["--prompt", PROMPT, "--seed", SEED, "--steps", STEPS, "--output", f"{folder}/x.png"]
        painted = []
        for more in ([], ["--init-image", f"{folder}/in.png", "--strength", STRENGTH, "--size", "64x64"]):
            command = [options.darkroom, "sample", "--model", options.model, *map(str, [*flags, *more])]
            subprocess.run(command, check=True, capture_output=True)
            painted.append(pixels(Path(folder, "x.png").read_bytes()))
    wanted, wanted_from_picture = painted
    clients: list[tuple[Callable[[int], np.ndarray | None], np.ndarray]] = [
        *((client, wanted) for client in (ask_boto3, ask_openai, ask_huggingface_hub, ask_webuiapi, ask_tritonclient, ask_openapi_spec_validator, ask_curl)),
        (ask_huggingface_hub_from_a_picture, wanted_from_picture),
        (ask_openai_edits, wanted_from_picture),
        (ask_webuiapi_from_a_picture, wanted_from_picture),
    ]
    differences = 0
    with served(options.darkroom, options.model) as port:
        for client, picture_wanted in clients:
            name = client.__name__.removeprefix("ask_")
            try:
                picture = client(port)
                assert picture is None or np.array_equal(picture, picture_wanted), "another picture than sample's"
                print(f"{name:28} equal" if picture is not None else f"{name:28} answered")
            except Exception as error:  # Each client is a boundary: the next one is asked whatever happened.
                differences += 1
                print(f"{name:28} DIFFERS: {type(error).__name__}: {error}")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
