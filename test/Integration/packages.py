"""Packages of other languages and of PyPI that only tests need, installed once in a folder of the build."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

# It needs a tenth of pip's time.
UV = pathlib.Path(sys.executable).with_name("uv")


def command(arguments, **kwargs):
    """Whether a command succeeds; else prints its last line."""
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, **kwargs)
    if result.returncode:
        print((result.stdout + result.stderr).strip().rsplit("\n", 1)[-1])
    return result.returncode == 0


def install(python, package, *options):
    return command([UV, "pip", "install", "-q", "--python", python, *options, package], env=os.environ | {"UV_HTTP_RETRIES": "0"})


def python_with(package, packages):
    """The Python program of an environment that has a package alone, or nothing."""
    folder = packages / package
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        if not command([UV, "venv", "-q", "--clear", folder]) or not install(python, package):
            return None
        (folder / "done").touch()
    return python


def check_client(checks, name, package, packages, *arguments):
    """Checks that a script succeeds in an environment with the package of a client for Python; skips it if there is no package."""
    if python := python_with(package, packages):
        checks.check(subprocess.run([python, *arguments]).returncode == 0, f"{name}'s client for Python")
    else:
        print(f"skipped: no client of {name} for Python")


def import_from(package, packages):
    """Lets this program import a package. Returns whether it can."""
    folder = packages / package
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        if not install(sys.executable, package, "--target", folder):
            return False
        (folder / "done").touch()
    sys.path.append(str(folder))
    return True


def node_package(package, packages):
    """The folder that has a package for Node, or nothing."""
    folder = packages / package
    if not shutil.which("npm"):
        print("npm is missing")
        return None
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if not command(["npm", "install", "--silent", "--fetch-retries", "0", "--prefix", folder, package]):
            return None
        (folder / "done").touch()
    return folder


def go_module(module, packages):
    """The folder that has the files of a Go module (NAME@VERSION), or nothing."""
    if not shutil.which("go"):
        print("go is missing")
        return None
    cache = packages / "go"
    cache.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, cwd=cache,
                            env=os.environ | {"GOPATH": str(cache), "GOMODCACHE": str(cache / "modules"), "GOFLAGS": "-modcacherw", "GOTOOLCHAIN": "local", "GO111MODULE": "on"})
    found = json.loads(result.stdout) if result.stdout else {}
    if "Dir" not in found:
        print(found.get("Error") or result.stderr.strip().rsplit("\n", 1)[-1])
        return None
    return pathlib.Path(found["Dir"])
