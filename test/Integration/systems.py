"""The packages on systems where nothing is installed, without network: they install, the next command answers, a server answers, and
after their removal nothing is left but the cache. `make packages-test`, as root. AArch64 is emulated, which takes minutes.

  systems.py PACKAGES MODEL [SUITE...]

Each SUITE of Debian has a root in PACKAGES/roots, which debootstrap makes once.
"""
import pathlib
import re
import shutil
import subprocess
import sys

from archive_roots import answer_of, enter_with_emulator
from checks import Checks
from system_roots import ARCHITECTURES, System, Timed, begin_all, prepared

PACKAGES, MODEL = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
SUITES = sys.argv[3:] or ["bookworm", "trixie"]
# The README asks for it where an archive is unpacked.
TOOLS = "zstd"
checks = Checks()


def left(root):
    """Files that a root has beside those of its system, of the test, of the cache and of the system's records of packages."""
    ours = r"(model|packages|home/\.cache/qwen-run|tmp|var/(lib|log|cache))/"
    return sorted(path for path in root.files() - root.first if not re.match(ours, path))


def check_use(root, name, timed, remove):
    """A first answer, a chat and a server, which goes on after the removal."""
    text = timed("first answer", root.run, "qwen-run", "generate", "/model", "-p", "Once upon a time", "-n", "24", "--temperature", "0")
    checks.check(len(text.split()) > 8, f"{name}: an answer is {text!r}")
    text = root.run("qwen-run", "/model", "-n", "8", text="Hello\n")
    checks.check(text.strip(), f"{name}: chat answers nothing")
    server = root.serve("qwen-run", "/model")
    checks.check('"text"' in answer_of(server), f"{name}: the server does not answer")
    timed("removal", remove)
    checks.check('"text"' in answer_of(server), f"{name}: the server does not answer after the removal")
    server.stop()
    checks.expect(f"what {name} leaves", left(root), [])
    checks.check(list((root.path / "home/.cache/qwen-run").iterdir()), f"{name} leaves no cache")


def apt(root, *arguments):
    root.run("apt-get", "-q", "-y", *arguments, DEBIAN_FRONTEND="noninteractive")


def check_deb(system, name, deb):
    root, timed = prepared(system, MODEL, deb), Timed()
    timed("install", apt, root, "install", f"/packages/{deb.name}")
    check_use(root, name, timed, lambda: apt(root, "remove", "qwen-compiler"))
    return timed


def check_archive(system, name, archive):
    root, timed = prepared(system, MODEL, archive), Timed()
    folder = f"/tmp/{archive.name.removesuffix('.tar.zst')}"

    def install():
        root.run("tar", "--zstd", "-xf", f"/packages/{archive.name}", "-C", "/tmp")
        root.run(f"{folder}/install.sh")

    timed("install", install)
    check_use(root, name, timed, lambda: root.run(f"{folder}/install.sh", "--uninstall"))
    return timed


def check_both(system, name, deb, archive):
    """A newer package, and an archive beside it, as `make install` puts its files."""
    control = PACKAGES / "newer"
    shutil.rmtree(control, ignore_errors=True)
    subprocess.run(["dpkg-deb", "-R", deb, control], check=True)
    text = (control / "DEBIAN/control").read_text()
    (control / "DEBIAN/control").write_text(re.sub(r"^Version: .*", "Version: 99", text, flags=re.M))
    newer = PACKAGES / "newer.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", control, newer], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(control)
    root = prepared(system, MODEL, deb, newer, archive)
    newer.unlink()
    apt(root, "install", f"/packages/{deb.name}")
    apt(root, "install", "/packages/newer.deb")
    checks.check("99" in root.run("dpkg-query", "-W", "qwen-compiler"), f"{name}: the newer package does not replace the older one")
    root.run("tar", "--zstd", "-xf", f"/packages/{archive.name}", "-C", "/tmp")
    installer = f"/tmp/{archive.name.removesuffix('.tar.zst')}/install.sh"
    for _ in range(2):
        root.run(installer)
    text = root.run(installer, "/opt/second")
    checks.check("PATH has /usr/local/bin/qwen-run; put /opt/second/bin first in it" in text, f"{name}: a second installation says {text!r}")
    for prefix in ("/usr", "/usr/local", "/opt/second"):
        root.run(f"{prefix}/bin/qwen-run", "--version")
    apt(root, "remove", "qwen-compiler")
    for program in ("qwen-run", "qwen-opt"):
        root.run(program, "--version")
    root.run("/usr/local/share/doc/qwen-compiler/install.sh", "--uninstall")
    root.run(installer, "--uninstall", "/opt/second")
    checks.expect(f"what {name} leaves", left(root), [])


def compressed_size(archive, name):
    """Bytes of a file of an archive alone, compressed as the archive is."""
    program = subprocess.run(["tar", "--zstd", "-xOf", archive, f"{archive.name.removesuffix('.tar.zst')}/{name}"], stdout=subprocess.PIPE, check=True)
    return len(subprocess.run(["zstd", "-19", "-T0", "-c"], input=program.stdout, stdout=subprocess.PIPE, check=True).stdout)


systems = [System(PACKAGES, suite, architecture, TOOLS) for architecture in ARCHITECTURES for suite in SUITES]
begin_all(systems)
enter_with_emulator()
for architecture, machine in ARCHITECTURES.items():
    deb, archive = next(PACKAGES.glob(f"*_{architecture}.deb")), next(PACKAGES.glob(f"*-{machine}.tar.zst"))
    for package in (deb, archive):
        print(f"{package.name}: {package.stat().st_size / 1e6:.1f} MB")
        checks.check(package.stat().st_size <= 60e6, f"{package.name} is larger than 60 MB")
    size = compressed_size(archive, "bin/qwen-run")
    print(f"qwen-run alone: {size / 1e6:.1f} MB", flush=True)
    checks.check(size <= 12e6, "qwen-run alone is larger than 12 MB")
    for system in (each for each in systems if each.architecture == architecture):
        root, suite = system.end(), system.suite
        for check, package in ((check_deb, deb), (check_archive, archive)):
            name = f"{package.name} on {suite}"
            seconds = check(root, name, package).seconds
            print(f"{name}: " + ", ".join(f"{what} {value:.1f} s" for what, value in seconds.items()), flush=True)
        check_both(root, f"both on {suite}", deb, archive)
checks.finish()
