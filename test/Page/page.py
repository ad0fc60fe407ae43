"""The page of qwen-run serve in Debian's Chromium.

  page.py MODEL DIST BARE PACKAGES [NAME...]

MODEL is models/stories, compiled; DIST the bundle of the page; BARE one without DOMPurify (bundle.py). Installs playwright and axe-core in the
folder PACKAGES once; says so and passes where a registry cannot be reached. NAMEs are the cases to run, by default all.
"""
import json
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "Integration")]
from checks import Checks  # noqa: E402
from packages import import_from, node_package  # noqa: E402
from server import Server  # noqa: E402

PLAYWRIGHT, AXE = "playwright==1.65.2", "axe-core@4.14.1"

model, dist, bare, packages = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
if not import_from(PLAYWRIGHT, packages):
    sys.exit(print("skipped: no playwright"))
axe = node_package(AXE, packages)

import features  # noqa: E402
import safety  # noqa: E402
import states  # noqa: E402
from browser import Setup, chromium  # noqa: E402
from fake_server import FakeServer  # noqa: E402

checks = Checks()
server = Server(model)
facts = {path: server.send("GET", path)[2] for path in ("/health", "/openapi.json", "/v1/models", "/metrics")}
names = sys.argv[5:]
with chromium() as browser:
    for name, case in (features.CASES | states.CASES).items():
        if names and name not in names:
            continue
        began = time.monotonic()
        fake = FakeServer(dist, dict(facts))
        try:
            case(Setup(checks, browser, fake, server, axe and (axe / "node_modules/axe-core/axe.min.js").read_text()))
        except Exception as error:  # A case that ends early does not hide what others find.
            checks.check(False, f"{name}: {str(error)[:600]}")
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    for folder, sanitized in ((dist, True), (bare, False)):
        if names and "hostile" not in names:
            continue
        if not folder.exists():
            print(f"skipped: there is no {folder}")
            continue
        began = time.monotonic()
        safety.hostile(checks, browser, FakeServer(folder, dict(facts)), sanitized)
        print(f"hostile answers, {folder.name}: {time.monotonic() - began:.1f} s", flush=True)
server.stop()
checks.finish()
