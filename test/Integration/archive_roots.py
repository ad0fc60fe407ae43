"""Roots of file systems in which a test runs programs: without network, with the processes of this test alone."""
import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

from server import Server


# Folders of a root whose files the kernel makes.
KERNEL = ("dev", "proc", "sys")
# Where roots lie: a file system in memory that the namespace of mounts alone has.
ROOTS = "/mnt"
NAMESPACES = ["--mount", "--net", "--pid", "--fork", "--kill-child"]
# The ELF header of a program for AArch64, and its bytes that count.
AARCH64 = (r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
           r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff")


def prepare():
    """In the new namespaces: a place for roots, and what `ip link set lo up` does."""
    subprocess.run(["mount", "-t", "tmpfs", "none", ROOTS], check=True)
    set_flags, is_up = 0x8914, 1
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", b"lo", is_up))


def enter():
    """Runs this program again in namespaces of its own, where it is root. Returns in the new process; says so and passes where the
    system does not allow it."""
    if os.environ.get("QWEN_TEST_NAMESPACES"):
        prepare()
        return
    command = ["unshare", *NAMESPACES, *([] if os.getuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode:
        print("no namespaces here")
        sys.exit(0)
    os.environ["QWEN_TEST_NAMESPACES"] = "yes"
    os.execvp("unshare", [*command, sys.executable, *sys.argv])


def enter_with_emulator():
    """The same for root, with a namespace of users, too: it has an emulator of its own for programs of AArch64."""
    if os.environ.get("QWEN_TEST_NAMESPACES"):
        prepare()
        folder = tempfile.mkdtemp(dir=ROOTS)
        subprocess.run(["mount", "-t", "binfmt_misc", "none", folder], check=True)
        # F: the file is opened now, so that roots need no emulator.
        pathlib.Path(folder, "register").write_text(":".join(["", "qwen-aarch64", "M", "", *AARCH64, shutil.which("qemu-aarch64-static"), "F"]))
        return
    end, start = os.pipe()
    process = subprocess.Popen(["unshare", "--user", *NAMESPACES, "sh", "-c", f'read -r line <&{end}; exec "$@"', "sh", sys.executable, *sys.argv],
                               pass_fds=[end], env=os.environ | {"QWEN_TEST_NAMESPACES": "yes"})
    here = os.readlink("/proc/self/ns/user")
    while process.poll() is None and os.readlink(f"/proc/{process.pid}/ns/user") == here:
        time.sleep(0.01)
    # All users, as outside.
    for name in ("uid_map", "gid_map"):
        pathlib.Path(f"/proc/{process.pid}", name).write_text("0 0 65536")
    os.write(start, b"go\n")
    sys.exit(process.wait())


class Root:
    """A root: an empty folder, or a copy of `system`, whose files it had at first."""

    def __init__(self, system=None):
        # Nothing is removed: it ends with the namespace. Never bind /dev itself here, because a removal would follow it to the machine's devices.
        self.path = pathlib.Path(tempfile.mkdtemp(dir=ROOTS))
        if system:
            parts = [path for path in pathlib.Path(system).iterdir() if path.name not in KERNEL]
            subprocess.run(["cp", "--archive", *parts, self.path], check=True)
        self.first = self.files()
        for name in ("proc", "dev"):
            (self.path / name).mkdir()
        subprocess.run(["mount", "-t", "proc", "proc", self.path / "proc"], check=True)
        for name in ("null", "random", "urandom", "zero"):
            (self.path / "dev" / name).touch()
            subprocess.run(["mount", "--bind", f"/dev/{name}", self.path / "dev" / name], check=True)

    def files(self):
        """The paths of all files but those of the kernel."""
        found = set()
        for folder, folders, names in os.walk(self.path):
            if folder == str(self.path):
                folders[:] = [name for name in folders if name not in KERNEL]
            found |= {os.path.relpath(os.path.join(folder, name), self.path) for name in names}
        return found

    def command(self, *arguments, **environment):
        words = [f"{name}={value}" for name, value in {"PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", "HOME": "/home", **environment}.items()]
        return ["env", "-i", *words, shutil.which("chroot"), self.path, *arguments]

    def run(self, *arguments, status=0, text=None, **environment):
        """Standard output and error of a command that must end with a status."""
        done = subprocess.run([str(a) for a in self.command(*arguments, **environment)], input=text, capture_output=True, text=True)
        if done.returncode != status:
            sys.exit(f"status {done.returncode}, not {status}: {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def serve(self, program, model, **environment):
        return Server(None, program=self.command(program, "serve", model, "--listen", "127.0.0.1:0", **environment))


def answer_of(server):
    """The text that a server writes to a prompt."""
    status, _, body = server.send("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    if status != 200:
        sys.exit(f"the server answers {status}: {body}")
    return body
