"""What the commits of the last day changed, and which tests these changes cannot break.

  changes.py unaffected [PATH...]     prints the labels of tests that .ci/run leaves out, with spaces between
  changes.py including PATH...        prints the sources that are, or include, one of the files

PATHs take the place of what the commits changed.

A label has a row below: a test with the label runs if a file below one of its folders changed. Tests without a label always run. A
change of what builds and runs all tests (EVERYTHING) runs all of them, and so does a history that does not reach back a day.
`make test` runs all tests, whatever changed.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SECONDS = 24 * 3600

BITS = tuple(f"{place}/{folder}/" for place in ("include/qwen", "lib") for folder in ("ABI", "CodeGen", "Numerics", "Verify")) + (
    "test/Unit/", "test/Integration/answers")
RUNTIME = ("include/", "lib/ABI/", "lib/CodeGen/Driver/", "lib/Numerics/", "lib/Support/", "lib/Verify/", "runtime/", "test/Unit/")
LABELS = {
    # The bits of kernels, on each machine.
    "bits": BITS,
    # The runtime on AArch64: its build, and its tests under emulation.
    "aarch64": RUNTIME + BITS + ("lib/Gradients/", "lib/Import/", "lib/Quantizers/", "lib/Weights/", "tools/", "test/Integration/"),
    # Readers of files and of the network under AddressSanitizer, and the fuzz targets.
    "reads": RUNTIME + ("export/", "lib/", "tools/qwen-run/", "test/Fuzz/", "test/Inputs/"),
    # Threads under ThreadSanitizer.
    "threads": RUNTIME + ("lib/Gradients/", "lib/Quantizers/"),
    # The page in a browser.
    "page": ("web/", "runtime/server/", "test/Page/"),
}
EVERYTHING = (".ci/", "cmake/", "CMakeLists.txt", "CMakePresets.json", "Makefile", "test/CMakeLists.txt", "test/Unit/CMakeLists.txt",
              "test/changes.py", "test/lit")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def changed_files():
    """The paths that the commits of the day before the newest one changed, or None if no commit is older."""
    newest = int(git("log", "-1", "--format=%ct"))
    base = git("rev-list", "-1", f"--before={newest - SECONDS}", "HEAD")
    return git("diff", "--name-only", base, "HEAD").splitlines() if base else None


def unaffected(changed):
    """The labels none of whose folders has a file of `changed`."""
    if changed is None or any(path.startswith(EVERYTHING) for path in changed):
        return []
    return [label for label, folders in LABELS.items() if not any(path.startswith(folders) for path in changed)]


def including(changed):
    """The files of C++ among `changed`, and those that include one of them, directly or by another file. An include names the end of a
    path, so that files of the same name in two folders count as one."""
    files = git("ls-files", "*.cpp", "*.h", "*.def", "*.td", "*.c").splitlines()
    # TableGen makes Ops.h.inc and Ops.cpp.inc of Ops.td.
    includes = {path: [re.sub(r"\.(h|cpp)\.inc$", ".td", name) for name in re.findall(r'^#?include "(.*)"', (ROOT / path).read_text(), re.MULTILINE)]
                for path in files}
    found, new = set(), {path for path in changed if path in includes}
    while new:
        found |= new
        new = {path for path, names in includes.items() if path not in found
               and any(f"/{other}".endswith(f"/{name}") for name in names for other in new)}
    return found


if __name__ == "__main__":
    command, *paths = sys.argv[1:] or [""]
    if command == "unaffected":
        print(*unaffected(paths or changed_files()))
    elif command == "including":
        print(*sorted(including(paths)))
    else:
        sys.exit(__doc__)
