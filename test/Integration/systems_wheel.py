"""The wheels on systems with Debian's Python, without network: pip installs one in a virtual environment, a program answers with the bits of the
command and of all other systems, and pip leaves nothing. `make packages-test`, as root. AArch64 is emulated, which takes minutes.

  systems_wheel.py PACKAGES MODEL [SUITE...]
"""
import pathlib
import sys

from archive_roots import enter_with_emulator
from checks import Checks
from system_roots import ARCHITECTURES, System, Timed, begin_all, prepared

PACKAGES, MODEL = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
SUITES = sys.argv[3:] or ["bookworm", "trixie"]
VENV = "/home/venv"
PROGRAM = """
import time
start = time.perf_counter()
import qwen_compiler
print(time.perf_counter() - start)
with qwen_compiler.load("/model") as model:
    print(time.perf_counter() - start)
    print(model.generate("Once upon a time", qwen_compiler.SamplingParams(seed=7, max_tokens=24))[0].text)
"""
checks = Checks()
stories = set()


def check_wheel(system, name, wheel):
    """Install, first program, the command, removal."""
    root, timed = prepared(system, MODEL, wheel), Timed()
    timed("environment", root.run, "python3", "-m", "venv", VENV)
    before = root.files()
    timed("install", root.run, f"{VENV}/bin/pip", "install", "--no-index", f"/packages/{wheel.name}")
    seconds, loaded, story = timed("first answer", root.run, f"{VENV}/bin/python", "-W", "error", "-c", PROGRAM).split("\n", 2)
    timed.seconds |= {"import": float(seconds), "compile and load": float(loaded) - float(seconds)}
    timed("second answer", root.run, f"{VENV}/bin/python", "-c", PROGRAM)
    stories.add(story)
    same = root.run(f"{VENV}/bin/qwen-run", "generate", "/model", "-p", "Once upon a time", "-n", "24", "--seed", "7")
    checks.check(same.startswith(story), f"{name}: the command answers {same!r}, not {story!r}")
    timed("removal", root.run, f"{VENV}/bin/pip", "uninstall", "-y", "qwen_compiler")
    left = sorted(path for path in root.files() - before if not path.startswith("home/.cache/") and "__pycache__" not in path)
    checks.expect(f"what {name} leaves", left, [])
    return timed


systems = {architecture: [System(PACKAGES, suite, architecture, "python3-venv") for suite in SUITES]
           for architecture, machine in ARCHITECTURES.items() if any(PACKAGES.glob(f"*_{machine}.whl"))}
begin_all(system for each in systems.values() for system in each)
enter_with_emulator()
for architecture, of in systems.items():
    wheel = next(PACKAGES.glob(f"*_{ARCHITECTURES[architecture]}.whl"))
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    checks.check(wheel.stat().st_size <= 60e6, f"{wheel.name} is larger than 60 MB")
    for system in of:
        name = f"{wheel.name} on {system.suite}"
        seconds = check_wheel(system.end(), name, wheel).seconds
        print(f"{name}: " + ", ".join(f"{what} {value:.2f} s" for what, value in seconds.items()), flush=True)
checks.expect("different stories", len(stories), 1)
checks.finish()
