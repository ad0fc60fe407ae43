"""Systems of Debian in which packages are tried: debootstrap makes the root of each once, in PACKAGES/roots. AArch64 is emulated."""
import os
import shutil
import subprocess
import sys
import time

from archive_roots import Root

# Names of an architecture: of Debian and of the kernel.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


class System:
    """Debian's least system of a suite, with some packages."""

    def __init__(self, folder, suite, architecture, packages):
        self.suite, self.architecture, self.packages = suite, architecture, packages
        self.root = folder / "roots" / f"{suite}-{architecture}-{packages.replace(',', '-')}"
        self.begun = self.root.with_suffix(".begun")

    def begin(self):
        """Unpacks the packages of the root, outside of the namespaces: there is the network."""
        if self.root.exists() or self.begun.exists():
            return
        print(f"== debootstrap {self.suite} {self.architecture} with {self.packages}", flush=True)
        making = self.root.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        making.parent.mkdir(exist_ok=True)
        subprocess.run(["debootstrap", "--foreign", "--variant=minbase", f"--include={self.packages}", f"--arch={self.architecture}", self.suite, making],
                       stdout=subprocess.DEVNULL, check=True)
        making.rename(self.begun)

    def end(self):
        """Installs these packages, which needs the emulator. Returns the root."""
        if self.begun.exists():
            # Its name for a system that may not make devices.
            subprocess.run(["chroot", self.begun, "/debootstrap/debootstrap", "--second-stage"], env=os.environ | {"container": "lxc"},
                           stdout=subprocess.DEVNULL, check=True)
            self.begun.rename(self.root)
        return self.root


def begin_all(systems):
    """Begins the roots, in the first of the two processes of a test."""
    if os.environ.get("QWEN_TEST_NAMESPACES"):
        return
    for program in ("debootstrap", "qemu-aarch64-static"):
        if os.getuid() or not shutil.which(program):
            sys.exit(f"{os.path.basename(sys.argv[0])}: it needs root and {program}, of Debian's packages debootstrap and qemu-user-static")
    for system in systems:
        system.begin()


class Timed:
    """Seconds of calls by their names."""

    def __init__(self):
        self.seconds = {}

    def __call__(self, name, function, *arguments, **options):
        start = time.monotonic()
        result = function(*arguments, **options)
        self.seconds[name] = time.monotonic() - start
        return result


def prepared(system, model, *packages):
    """A copy of a root, with the folder of a model and packages."""
    root = Root(system)
    shutil.copytree(model, root.path / "model")
    (root.path / "packages").mkdir()
    for package in packages:
        shutil.copy(package, root.path / "packages")
    return root
