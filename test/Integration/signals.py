"""Ctrl-C stops an answer but not the chat. Neither a kill nor a truncated model leaves an incomplete output file.

  signals.py ARTIFACT CHECKPOINT WORKDIR
"""
import fcntl
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

from checks import own_lines
from errors_elsewhere import IN_USE

artifact, checkpoint, work = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
work.mkdir(parents=True, exist_ok=True)
CHAT = ["qwen-run", "chat", artifact, "-n", "200", "--seed", "1", "-t", "1"]


def uninterrupted():
    result = subprocess.run(CHAT, input=b"Tell a story.\n", capture_output=True, check=True)
    return result.stdout


def wait_until_still(reader, more_than):
    """Waits until the pipe has more than this number of bytes and receives no more."""
    held, since = 0, time.monotonic()
    while held <= more_than or time.monotonic() - since < 0.3:
        (now,) = struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4))
        if now != held:
            held, since = now, time.monotonic()
        time.sleep(0.01)


def interrupted(room):
    """Two answers, with Ctrl-C after about `room` bytes of the first."""
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    # A pipe that is almost full holds the program in the middle of its answer.
    filler = size - room
    os.write(writer, b"." * filler)
    process = subprocess.Popen(CHAT, stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    process.stdin.write(b"Tell a story.\n")
    process.stdin.flush()
    wait_until_still(reader, filler)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.stdin.write(b"Go on.\n")
    process.stdin.close()
    output = b""
    while piece := os.read(reader, 65536):
        output += piece
    os.close(reader)
    error = process.stderr.read()
    assert process.wait() == 0, (process.returncode, error)
    assert error == b"", error
    return output[filler:]


def leaves_nothing():
    """SIGTERM while logits are written."""
    output = work / "killed.npy"
    ids = ",".join(str(i) for i in range(1000))
    for _ in range(20):
        process = subprocess.Popen(["qwen-run", "logits", artifact, "--ids", ids, "-o", output, "-t", "1"])
        while process.poll() is None and not list(work.glob("killed.npy.*")):
            pass
        process.terminate()
        if process.wait() == -signal.SIGTERM:
            break
        output.unlink()
    assert process.returncode == -signal.SIGTERM, process.returncode
    assert not list(work.glob("killed.npy*")), list(work.glob("killed.npy*"))


def truncated(original, path, *command):
    """Truncates `path`, a copy of `original`, to its half while `command` has it mapped."""
    for _ in range(20):
        shutil.copy(original, path)
        before = sorted(work.iterdir())
        process = subprocess.Popen([*command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and str(path) not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
            pass
        os.truncate(path, path.stat().st_size // 2)
        error = process.stderr.read()
        if process.wait() != 0:
            break
        for output in set(work.iterdir()) - set(before):
            output.unlink()
    assert process.returncode == 1, (process.returncode, error)
    assert own_lines(error) == [IN_USE.format(program=command[0], path=path)], error
    assert sorted(work.iterdir()) == before, sorted(work.iterdir())


def truncated_in_use():
    model = work / "truncated.qwen"
    ids = ",".join(str(i) for i in range(1000))
    truncated(artifact, model, "qwen-run", "logits", model, "--ids", ids, "-o", work / "truncated.npy")
    folder = work / "checkpoint"
    shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
    weights = folder / "model.safetensors"
    # Two threads may read the file in the same moment.
    for _ in range(6):
        truncated(checkpoint / weights.name, weights, "qwen-opt", folder, "-o", work / "of_truncated.qwen")


def killed():
    """A killed compile leaves nothing under the final name, or the whole file; SIGTERM and SIGINT leave no other file."""
    out = work / "killed"
    out.mkdir(exist_ok=True)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        for delay in (0.02, 0.1, 0.2, 0.4):
            for left in out.iterdir():
                left.unlink()
            process = subprocess.Popen(["qwen-opt", checkpoint, "-o", out / "model.qwen"], stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.send_signal(number)
            process.wait()
            files = [path.name for path in out.iterdir()]
            if process.returncode == 0 or "model.qwen" in files:
                assert files == ["model.qwen"], f"signal {number} came late, but files are {files}"
                subprocess.run(["qwen-run", "info", out / "model.qwen", "--check"], check=True, stdout=subprocess.DEVNULL)
            elif number != signal.SIGKILL:
                assert not files, f"signal {number} after {delay} s: {files}"


whole = uninterrupted()
assert len(whole) > 400, whole
both = interrupted(100)
first = len(os.path.commonprefix([whole, both]))
assert 50 < first < 200, (first, whole, both)
assert len(both) > first + 10, both
leaves_nothing()
truncated_in_use()
killed()
