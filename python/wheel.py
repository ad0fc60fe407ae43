"""Makes the wheel of the Python package from what a build installs.

  wheel.py BUILD TREE FOLDER LEVEL

BUILD is the build folder, TREE a folder with its installed files, LEVEL zlib's, 0 to 9. The file in FOLDER has no Python ABI: one
serves all versions from 3.10 on. All its times are SOURCE_DATE_EPOCH, so that two wheels of one build have the same bytes.
"""
import base64
import hashlib
import os
import pathlib
import re
import struct
import sys
import time
import zipfile

import declarations

SOURCE = pathlib.Path(__file__).resolve().parents[1]
NAME = "qwen_compiler"
MACHINES = {62: "x86_64", 183: "aarch64"}
PROGRAMS = ("qwen-opt", "qwen-run")
# Commands in Python, and what a program needs beside the package, by extra.
COMMANDS = (*PROGRAMS, "qwen-train")
EXTRAS = {"numpy": ("numpy",), "train": ("numpy", "torch>=2.4", "transformers>=5.0", "peft", "accelerate", "safetensors", "tqdm")}
LIBRARY = f"{NAME}/lib/libqwenrt.so"



def cached(build, name):
    """A variable of the build."""
    return re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)[1]


def platform_of(library):
    """The platform of a wheel: of the architecture in an ELF header, with the least glibc that install.sh knows."""
    machine = MACHINES[struct.unpack_from("<H", library, 18)[0]]
    glibc = re.search(r"^glibc=(\d+)\.(\d+)$", (SOURCE / "deploy/install.sh").read_text(), re.M)
    return f"manylinux_{glibc[1]}_{glibc[2]}_{machine}"


def modules(build):
    """The modules of the package by their names in the wheel."""
    compiler = cached(build, "CMAKE_C_COMPILER")
    folder = SOURCE / "python"
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in (folder / NAME).rglob("*") if path.suffix == ".py" or path.name == "py.typed"}
    files[f"{NAME}/_declarations.py"] = declarations.header_module(compiler, SOURCE / "runtime/include/qwenrt.h").encode()
    files[f"{NAME}/_fields.py"] = declarations.fields_module(compiler, SOURCE / "include/qwen/ABI").encode()
    files[f"{NAME}/_version.py"] = f'"""The version of the package."""\n__version__ = "{cached(build, "CMAKE_PROJECT_VERSION")}"\n'.encode()
    return files


def binaries(tree):
    """The programs and the library of an installed tree by their names in the wheel."""
    programs = {f"{NAME}/bin/{program}": (tree / "bin" / program).read_bytes() for program in PROGRAMS}
    return programs | {LIBRARY: next(tree.glob("lib*/**/libqwenrt.so")).read_bytes()}


def metadata(version, tag, licences):
    """The files of dist-info, without RECORD."""
    scripts = "".join(f"{program} = {NAME}._programs:{program.replace('-', '_')}\n" for program in COMMANDS)
    extras = "".join(f"Provides-Extra: {extra}\n" + "".join(f"Requires-Dist: {each}; extra == '{extra}'\n" for each in packages)
                     for extra, packages in EXTRAS.items())
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: Qwen models in the process, compiled for this CPU\n"
                    f"Requires-Python: >=3.10\n{extras}"
                    "Description-Content-Type: text/markdown\n\n" + (SOURCE / "docs/python.md").read_text(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": f"[console_scripts]\n{scripts}\n[lm_eval.models]\n{NAME} = {NAME}.lm_eval:QwenCompilerLM\n",
    }
    return {name: text.encode() for name, text in files.items()} | licences


def record(files, name):
    """The list of all files with their hashes."""
    lines = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    return ("".join(lines) + f"{name},,\n").encode()


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    build, tree, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    version = cached(build, "CMAKE_PROJECT_VERSION")
    files = modules(build) | binaries(tree)
    tag = f"py3-none-{platform_of(files[LIBRARY])}"
    # The licences of all that the programs contain; a build for tests alone has none.
    copyright_file = tree / "share/doc/qwen-compiler/copyright"
    licences = {"licenses/copyright": copyright_file.read_bytes()} if copyright_file.exists() else {}
    info = f"{NAME}-{version}.dist-info"
    files |= {f"{info}/{name}": data for name, data in metadata(version, tag, licences).items()}
    files = dict(sorted(files.items()))
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")
    # A zip file stores no time before 1980.
    moment = max(time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6], (1980, 1, 1, 0, 0, 0))
    target = folder / f"{NAME}-{version}-{tag}.whl"
    temporary = target.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if f"{NAME}/bin/" in name else 0o100644) << 16
            archive.writestr(entry, data, compresslevel=int(sys.argv[4]))
    temporary.rename(target)
    print(target)


if __name__ == "__main__":
    main()
