"""Prints the licences of all that the programs of a build contain: of the Debian packages whose headers and archives they are made of,
of the crates in them, of Rust's library, of the page and of Halide.

  licences.py BUILD TARGET...
"""
import html
import json
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(sys.argv[1]).resolve()
TARGETS = sys.argv[2:]
RULE = "=" * 100


def output(*command, may_fail=False):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if may_fail else None, text=True, check=not may_fail)
    return done.stdout


def files_of(targets):
    """What the objects and the links of the targets read, outside of the project."""
    inputs = set(output("ninja", "-C", BUILD, "-t", "inputs", *targets).split("\n")) | set(targets)
    files, wanted = set(), False
    for line in output("ninja", "-C", BUILD, "-t", "deps").split("\n"):
        if line and not line[0].isspace():
            wanted = line.split(":")[0] in inputs
        elif wanted and line:
            files.add(os.path.realpath(BUILD / line.strip()))
    return {name for name in files if not name.startswith(f"{SOURCE}/")}


def debian_packages(files):
    """Names and versions of the packages that have the files."""
    # Exit status 1: a file belongs to no package.
    owners = set()
    for line in output("dpkg", "-S", *sorted(files), may_fail=True).split("\n"):
        if ": " in line and not line.startswith("diversion "):
            owners.update(name.strip() for name in line.split(": ")[0].split(","))
    if not owners:
        return []
    return sorted(tuple(line.split()) for line in output("dpkg-query", "-W", "-f", "${Package} ${Version}\n", *sorted(owners)).split("\n") if line)


def debian_parts(files):
    texts = {}
    for package, version in debian_packages(files):
        text = pathlib.Path("/usr/share/doc", package, "copyright").read_text(errors="replace")
        texts.setdefault(text, []).append(f"{package} {version}")
    return [(", ".join(sorted(set(names))), text) for text, names in texts.items()]


def crates():
    """The crates that the runtime links, not those that only build it."""
    metadata = json.loads((BUILD / "crates.json").read_text())
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    new, found = [metadata["resolve"]["root"]], set()
    while new:
        name = new.pop()
        if name not in found:
            found.add(name)
            new += [part["pkg"] for part in nodes[name]["deps"] if any(kind["kind"] is None for kind in part["dep_kinds"])]
    found.remove(metadata["resolve"]["root"])
    return sorted((packages[name] for name in found), key=lambda package: (package["name"], package["version"]))


def crate_parts():
    for crate in crates():
        folder = pathlib.Path(crate["manifest_path"]).parent
        texts = [path.read_text(errors="replace") for path in sorted(folder.iterdir()) if re.match(r"licen[sc]e|copying|notice|unlicense", path.name, re.I)
                 and path.is_file()]
        if not texts:
            sys.exit(f"licences.py: the crate {crate['name']} {crate['version']} ({crate['license']}) has no text of its licence in {folder}")
        yield f"crate {crate['name']} {crate['version']} ({crate['license']})", "\n\n".join(texts)


def rust_parts():
    """Rust's standard library: of a package of Debian, or with the licences beside the compiler."""
    library = pathlib.Path((BUILD / "rust-library").read_text())
    owned = debian_parts({str(library)})
    if owned:
        return owned
    documents = library.parents[4] / "share/doc/rust"
    text = re.sub(r"<[^>]*>", "", (documents / "COPYRIGHT-library.html").read_text())
    return [("Rust's standard library", re.sub(r"\n\s*\n+", "\n\n", html.unescape(text)))]


def parts():
    yield from debian_parts(files_of(TARGETS))
    if (BUILD / "crates.json").exists():
        yield from crate_parts()
        yield from rust_parts()
    yield "the page of qwen-run serve", (SOURCE / "web/dist/licenses.txt").read_text()
    # Its code writes the kernels of qwen-opt, with parts of its own library.
    halide = next((SOURCE / ".venv/halide").resolve().parent.glob("halide-*.dist-info"))
    yield halide.name.removesuffix(".dist-info").replace("-", " "), (halide / "licenses/LICENSE.txt").read_text()


found = list(parts())
print("What the programs of this package contain, with its licences below.\n")
for name, _ in found:
    print(f"- {name}")
for name, text in found:
    print(f"\n{RULE}\n{name}\n{RULE}\n\n{text.strip()}")
