# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium on the DevTools protocol, through its pipe: no sockets, nothing outside the standard library."""
import base64, json, os, shutil, subprocess, tempfile, time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """The program named by TROUPE_CHROMIUM, or one in the path; None if there is none."""
    named = os.environ.get("TROUPE_CHROMIUM")
    return shutil.which(named) if named else next((p for p in map(shutil.which, NAMES) if p), None)


class Browser:
    def __init__(self, program, width=1280, height=900):
        self.profile = tempfile.mkdtemp(prefix="troupe_page_")
        to_read, self.to = os.pipe()
        self.fro, from_write = os.pipe()
        # The program reads commands from descriptor 3 and writes answers to 4.
        shell = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", shell, "sh", program, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--mute-audio",
             f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "about:blank"],
            pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.rest, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def receive(self):
        while b"\0" not in self.rest:
            piece = os.read(self.fro, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self.rest += piece
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def open(self, path, dark=False):
        self.events.clear()
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.until("document.readyState === 'complete' && location.protocol === 'file:'")
        self.frames(3)

    def value(self, expression):
        """What a JavaScript expression yields, as JSON; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails'].get('exception', {}).get('description', '?')}")
        return result["result"].get("value")

    def until(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not self.value(condition):
            if time.monotonic() > end:
                raise RuntimeError(f"after {seconds} s this still does not hold: {condition}")
            time.sleep(0.02)

    def frames(self, count=2):
        self.value("new Promise(r => { let n = %d; const f = () => n-- ? requestAnimationFrame(f) : r(); f(); })" % count)

    def box(self, selector):
        """Its middle after it was scrolled into view: (x, y, width, height)."""
        return self.value("(e => { e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); "
                          "return [b.x + b.width / 2, b.y + b.height / 2, b.width, b.height]; })(document.querySelector(%s))" % json.dumps(selector))

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector, dx=0, dy=0):
        x, y, _, _ = self.box(selector)
        self.mouse("mouseMoved", x + dx, y + dy)
        self.mouse("mousePressed", x + dx, y + dy, button="left", clickCount=1)
        self.mouse("mouseReleased", x + dx, y + dy, button="left", clickCount=1)
        self.frames()

    def key(self, key, code=None, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code or key, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code or key)
        self.frames()

    def complaints(self):
        """Errors and warnings of the console, exceptions, and requests that left the page."""
        self.frames()
        out = []
        for event in self.events:
            p, method = event.get("params", {}), event.get("method")
            if method == "Runtime.exceptionThrown":
                out.append(p["exceptionDetails"].get("exception", {}).get("description", p["exceptionDetails"]["text"]))
            elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                out.append(f"console.{p['type']}: {[a.get('value', a.get('description')) for a in p['args']]}")
            elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                out.append(p["entry"]["text"])
            elif method == "Network.requestWillBeSent" and not p["request"]["url"].startswith(("file:", "data:")):
                out.append(f"a request to {p['request']['url']}")
        return out

    def picture(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as to:
            to.write(base64.b64decode(data))

    def close(self):
        try:
            session, self.session = self.session, None
            self.call("Browser.close")
        except (RuntimeError, OSError):
            self.process.kill()
        self.process.wait(20)
        os.close(self.to)
        os.close(self.fro)
        shutil.rmtree(self.profile, ignore_errors=True)
