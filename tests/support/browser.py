"""A real browser for tests: Chromium without a window, driven over its DevTools protocol by a pipe, with real clicks and keys.

    with Browser() as browser, browser.tab("http://127.0.0.1:8080/") as tab:
        tab.click("#paint")
        tab.wait_for("document.querySelectorAll('img').length === 1")

Every tab is a profile of its own. It records its requests and whatever its console says; `Tab.require_quiet` looks at both.
"""

import base64
import contextlib
import json
import os
import pathlib
import queue
import shutil
import subprocess
import tempfile
import threading
import urllib.parse
import time

from cases import Skipped, require

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120  # Seconds; a limit, no measure.
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "ArrowUp": (38, ""), "ArrowDown": (40, ""), "ArrowRight": (39, ""), "ArrowLeft": (37, ""), "Tab": (9, ""), "End": (35, ""), "Home": (36, "")}
MODIFIERS = {"Alt": 1, "Ctrl": 2, "Shift": 8}


class Browser:
    """One process of Chromium; `Skipped` where there is none, or where it does not start."""

    def __init__(self) -> None:
        program = next((found for found in map(shutil.which, BROWSERS) if found), None)
        if program is None:
            raise Skipped("no browser is installed here (Debian's package chromium)")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="darkroom-test-"))
        self.tabs: dict[str, Tab] = {}
        self.replies: dict[int, queue.Queue] = {}
        self.number = 0
        self.lock = threading.Lock()
        self.has_ended = False
        self.start(program)

    def start(self, program: str) -> None:
        theirs_in, self.ours_out = os.pipe()
        self.ours_in, theirs_out = os.pipe()
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                   "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--lang=en-US",
                   "--remote-debugging-pipe", f"--user-data-dir={self.folder}/profile", "about:blank"]
        # The protocol's two ends are the descriptors 3 and 4 of the browser. Debian's sh takes no number of two digits there.
        shell = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command]
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, pass_fds=(theirs_in, theirs_out), start_new_session=True)
        os.close(theirs_in)
        os.close(theirs_out)
        threading.Thread(target=self.read, daemon=True).start()
        try:
            self.ask("Browser.getVersion")
        except AssertionError:
            said = self.said()[-300:]
            self.__exit__()
            raise Skipped(f"the browser does not start here: {said}") from None

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace") if self.folder.exists() else ""

    def read(self) -> None:
        """The browser's messages end with a zero byte each."""
        rest = b""
        while block := os.read(self.ours_in, 1 << 16):
            *messages, rest = (rest + block).split(b"\0")
            for message in map(json.loads, messages):
                self.take(message)
        os.close(self.ours_in)
        with self.lock:
            self.has_ended = True
            for waiting in self.replies.values():
                waiting.put({"error": {"message": "the browser ended"}})

    def take(self, message: dict) -> None:
        if "id" in message:
            if waiting := self.replies.get(message["id"]):  # Else nobody waits any more.
                waiting.put(message)
        elif message.get("sessionId") in self.tabs:
            self.tabs[message["sessionId"]].heard(message["method"], message["params"])
        else:
            for tab in list(self.tabs.values()):
                tab.heard(message["method"], message["params"])

    def ask(self, method: str, session: str | None = None, **parameters) -> dict:
        with self.lock:
            require(not self.has_ended, "the browser ended before", method)
            self.number += 1
            number = self.number
            self.replies[number] = queue.Queue()
            message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
            with contextlib.suppress(BrokenPipeError):
                os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        try:
            reply = self.replies[number].get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"the browser does not answer {method}") from None
        finally:
            with self.lock:
                del self.replies[number]
        require("error" not in reply, f"the browser refuses {method}:", reply.get("error"))
        return reply["result"]

    @contextlib.contextmanager
    def tab(self, address: str, width: int = 1280, height: int = 900, **tastes: str):
        """A new profile with one tab; `tastes` are media features, as prefers_color_scheme="dark"."""
        context = self.ask("Target.createBrowserContext", disposeOnDetach=True)["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session, context, self.folder / f"files-{session[:8]}")
        self.tabs[session] = tab
        try:
            tab.open(address, width, height, tastes)
            yield tab
        finally:
            del self.tabs[session]
            self.ask("Target.disposeBrowserContext", browserContextId=context)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *unused) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        os.close(self.ours_out)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Tab:
    def __init__(self, browser: Browser, session: str, context: str, folder: pathlib.Path) -> None:
        self.browser, self.session, self.context, self.folder = browser, session, context, folder
        self.console: list[str] = []
        self.addresses: list[str] = []
        self.saved: queue.Queue = queue.Queue()
        self.names: dict[str, str] = {}

    def ask(self, method: str, **parameters) -> dict:
        return self.browser.ask(method, self.session, **parameters)

    def heard(self, method: str, facts: dict) -> None:
        if method == "Network.requestWillBeSent":
            self.addresses.append(facts["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.console.append(" ".join(str(one.get("value", one.get("description"))) for one in facts["args"]))
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.console.append(f'{facts["entry"]["text"]} {facts["entry"].get("url", "")}')
        elif method == "Browser.downloadWillBegin":
            self.names[facts["guid"]] = facts["suggestedFilename"]
        elif method == "Browser.downloadProgress" and facts["state"] == "completed" and facts["guid"] in self.names:
            self.saved.put(facts["guid"])

    def open(self, address: str, width: int, height: int, tastes: dict[str, str]) -> None:
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": name.replace("_", "-"), "value": value} for name, value in tastes.items()])
        self.folder.mkdir(exist_ok=True)
        self.browser.ask("Browser.setDownloadBehavior", behavior="allowAndName", browserContextId=self.context, downloadPath=str(self.folder), eventsEnabled=True)
        self.address = address
        self.ask("Page.navigate", url=address)

    def value(self, expression: str) -> object:
        """What an expression of JavaScript gives; a promise is awaited."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        details = result.get("exceptionDetails")
        require(details is None, "in the page:", expression, details and details.get("exception", {}).get("description"))
        return result["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Until the condition holds; the page looks again whenever it has had time for something else."""
        waiting = f"""new Promise((resolve) => {{
          const end = performance.now() + {900 * PATIENCE};
          const look = () => {{
            let holds = false;
            try {{ holds = Boolean({condition}); }} catch {{ }}
            holds || performance.now() > end ? resolve(holds) : setTimeout(look, 10);
          }};
          look();
        }})"""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                held = self.value(waiting)
                break
            except AssertionError as failure:  # The page is loaded anew meanwhile.
                if "context" not in str(failure) and "navigated" not in str(failure) or time.monotonic() > end:
                    raise
        require(held is True, "this never became true in the page:", condition, "- it shows:", self.value("document.body.innerText.slice(0, 1500)"), self.console)

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({json.dumps(selector)}).textContent"))

    def place_of(self, selector: str) -> tuple[float, float]:
        """The middle of an element, once it is seen there: nothing lies over it."""
        self.wait_for(f"""((found) => {{
          found.scrollIntoView({{block: "center", inline: "center", behavior: "instant"}});
          const box = found.getBoundingClientRect();
          window.placeOf = [box.x + box.width / 2, box.y + box.height / 2];
          return found.checkVisibility() && found.contains(document.elementFromPoint(...window.placeOf));
        }})(document.querySelector({json.dumps(selector)}))""")
        x, y = self.value("window.placeOf")
        return x, y

    def click(self, selector: str) -> None:
        """A click where a person would click."""
        x, y = self.place_of(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, keys: str) -> None:
        """ "a", "Enter", "Ctrl+Enter"."""
        *held, key = keys.split("+")
        code, text = KEYS.get(key, (ord(key[0].upper()), key))
        modifiers = sum(MODIFIERS[name] for name in held)
        fields = {"key": key, "code": key if key in KEYS else f"Key{key.upper()}", "windowsVirtualKeyCode": code, "modifiers": modifiers}
        typed = {"text": text} if text and modifiers in (0, MODIFIERS["Shift"]) else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **fields, **typed)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **fields)

    def fill(self, selector: str, text: str) -> None:
        """Puts a text into a field in place of what is there, as typed."""
        self.click(selector)
        self.value(f"document.querySelector({json.dumps(selector)}).select()")
        self.press("Delete") if text == "" else self.ask("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Of a <select>, whose list is a window of the system's."""
        self.value(f"""(() => {{
          const found = document.querySelector({json.dumps(selector)});
          found.value = {json.dumps(value)};
          for (const type of ["input", "change"]) found.dispatchEvent(new Event(type, {{bubbles: true}}));
        }})()""")

    def drop(self, path: pathlib.Path, selector: str = "body") -> None:
        """A file from outside, let go over an element."""
        x, y = self.place_of(selector)
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.ask("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def next_file(self) -> tuple[str, pathlib.Path]:
        """Name and place of the next file that the page has saved."""
        guid = self.saved.get(timeout=PATIENCE)
        return self.names[guid], self.folder / guid

    def reload(self) -> None:
        self.value("window.isOld = true")
        self.ask("Page.reload")
        self.wait_for("!window.isOld && document.readyState === 'complete'")

    def picture(self, path: str, whole: bool = False) -> None:
        """A screenshot, for people."""
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def require_quiet(self, *allowed: str) -> None:
        """No error in the console (but those that hold one of these words), and no request to anywhere but the server."""
        unexpected = [line for line in self.console if not any(word in line for word in allowed)]
        require(unexpected == [], "the console says:", unexpected)
        own = urllib.parse.urlsplit(self.address).netloc
        strangers = [one for one in self.addresses if one.split(":", 1)[0] not in ("blob", "data", "about") and urllib.parse.urlsplit(one).netloc != own]
        require(strangers == [], "the page asked elsewhere:", strangers)
        require(len(self.addresses) > 0, "no request was seen")
