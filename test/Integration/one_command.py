"""One command from a model to an answer (docs/decisions/0022-one-command.md).

  one_command.py FILE INPUTS WORKDIR      FILE is models/stories, compiled; INPUTS is test/Inputs

Most checks run a copy of qwen-run beside a qwen-opt that only copies FILE, so that they can count compiles, stop them and change
the compiler. It writes a line to `compiles` and, while `slow` exists, waits with half a file. While `full` exists, the disk of the cache is full.
"""
import atexit
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time

from checks import Checks, own_lines

FILE, INPUTS, WORK = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
disk = shutil.disk_usage(WORK)
if disk.free < disk.total / 18:
    # The cache would lose what it should keep.
    WORK = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm", prefix="qwen-test-"))
    atexit.register(shutil.rmtree, WORK)
checks = Checks()
BIN, CACHE, TMP = WORK / "bin", WORK / "cache", WORK / "tmp"
COMPILES, SLOW, FULL = WORK / "compiles", WORK / "slow", WORK / "full"
VERSION = subprocess.run(["qwen-opt", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
COMPILER = f"""#!/bin/sh
if [ "$1" = --version ]; then echo "qwen-opt ${{SHOWN_VERSION:-{VERSION}}}"; exit; fi
if [ "$1" = info ]; then echo '{{"compiled": {{"weight_bytes": 3145728, "arena_bytes": 1048576}}, "formats": []}}'; exit; fi
echo "$@" >> {COMPILES}
while [ $# -gt 0 ]; do
  case $1 in -o) out=$2;; --progress=*) progress=${{1#*=}};; --weights=none) echo "qwen-opt: no such format" >&2; exit 2;; esac
  shift
done
echo '{{"stage": "packing", "done": 1, "total": 2}}' >&$progress
echo 'qwen-opt: warning: a fake' >&2
case $out in {CACHE}/*) if [ -e {FULL} ]; then echo "qwen-opt: cannot write '$out': No space left on device" >&2; exit 1; fi;; esac
echo half > $out.tmp$$
while [ -e {SLOW} ]; do sleep 0.05; done
cp {FILE} $out.tmp$$ && mv $out.tmp$$ $out
"""
ENVIRONMENT = os.environ | {"HOME": str(WORK / "home"), "XDG_CACHE_HOME": str(CACHE), "TMPDIR": str(TMP)}
for name in ("HF_HUB_CACHE", "HF_HOME"):
    ENVIRONMENT.pop(name, None)
MODEL = WORK / "tiny"
IDS = ("--ids", "5,6,7", "-n", "3", "--ignore-eos")


def start(*arguments, program=BIN / "qwen-run", **environment):
    return subprocess.Popen([str(a) for a in (program, *arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | environment, start_new_session=True, cwd=WORK)


def run(*arguments, **options):
    """Status, standard output, and the lines of standard error."""
    process = start(*arguments, **options)
    out, errors = process.communicate(timeout=120)
    return process.returncode, out, own_lines(errors)


def generate(model=MODEL, *options, **environment):
    return run("generate", model, *IDS, *options, **environment)


def compiles():
    """The number of compiles since the last call."""
    lines = COMPILES.read_text().splitlines() if COMPILES.exists() else []
    COMPILES.unlink(missing_ok=True)
    return len(lines)


def files(ending=".qwen"):
    folder = CACHE / "qwen-run"
    return sorted(path for path in folder.iterdir() if path.name.endswith(ending)) if folder.exists() else []


def expect_error(name, result, *words, status=1):
    """One line of error, after lines that only tell."""
    checks.expect(name + ", status", result[0], status)
    last = result[2][-1] if result[2] else ""
    for word in words:
        checks.check(word in last, f"{name}: {last!r} has no {word!r}")


def answers(name, result, count, *words):
    """A run with the right answer after so many compiles, whose standard error has `words`."""
    checks.expect(name + ", answer", (result[0], result[1]), (0, ANSWER))
    checks.expect(name + ", compiles", compiles(), count)
    for word in words:
        checks.check(any(word in line for line in result[2]), f"{name}: {result[2]} has no {word!r}")


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.01)


def write_compiler(more="", text=COMPILER):
    (BIN / "qwen-opt").write_text(text + more)
    (BIN / "qwen-opt").chmod(0o755)


def check_cache():
    first = generate()
    answers("the first time", first, 1, "compiles tiny (", "tiny: q4_0 for ", " of memory and ", " are free", "warning: a fake")
    answers("the second time", generate(), 0, "tiny: q4_0 for ")
    [file] = files()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (CACHE / "qwen-run", *(CACHE / "qwen-run").iterdir())]
    checks.expect("modes", modes, [0o700, 0o600, 0o600])
    os.utime(file, (1, 1))
    generate()
    checks.check(file.stat().st_mtime > 1, "a use sets the time of the file")

    # Each part of the key.
    answers("another option", generate(MODEL, "--context", "4"), 1)
    answers("the same option in another form", generate(MODEL, "--context=4"), 0)
    text = WORK / "text"
    text.write_text("one")
    answers("a file of an option", generate(MODEL, f"--calibrate={text}"), 1)
    text.write_text("two")
    answers("another file of an option", generate(MODEL, f"--calibrate={text}"), 1)
    weights = MODEL / "model.safetensors"
    os.utime(weights, (1, 1))
    answers("another time", generate(), 1)
    data = bytearray(weights.read_bytes())
    data[100] ^= 1
    weights.write_bytes(data)
    os.utime(weights, (1, 1))
    answers("other bytes", generate(), 1)
    (MODEL / "extra.json").write_text("{}")
    answers("another file", generate(), 1)
    write_compiler("# changed\n")
    answers("another compiler", generate(), 1, "again: its cached file is of another version of qwen-opt")
    before = len(files())
    checks.expect("an old version is replaced", before, len({path.name.rsplit("-", 1)[0] for path in files()}))

    dry = run("generate", MODEL, *IDS, "--dry-run", "--context", "8")
    checks.check(dry[0] == 0 and "would compile" in dry[1] and "need 4.0 MiB of memory" in dry[1] and "--context=8" in dry[1] and not dry[2], f"--dry-run: {dry}")
    dry = run("chat", MODEL, "--dry-run")
    checks.check(dry[0] == 0 and f"{MODEL} is compiled: {CACHE}" in dry[1], f"--dry-run of a cached model: {dry}")
    checks.expect("--dry-run compiles nothing", compiles(), 0)
    expect_error("an option for a compiled file", generate(FILE, "--weights", "q4_0"), "--weights has no effect on")
    expect_error("a compile that fails", generate(MODEL, "--weights", "none"), "qwen-run: no such format", status=2)
    compiles()
    checks.expect("nothing is left of it", len(files(".json")), len(files()))


def check_terminal():
    """A terminal shows the stage and a bar, and no longer after the compile."""
    terminal, end = os.openpty()
    process = subprocess.run([BIN / "qwen-run", "generate", MODEL, *IDS, "--context", "512"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=end, text=True, env=ENVIRONMENT)
    shown = os.read(terminal, 65536).decode()
    os.close(end)
    os.close(terminal)
    checks.expect("on a terminal", (process.stdout, compiles()), (ANSWER, 1))
    checks.check("\rpacking [####################....................]  50%\x1b[K\r\x1b[K" in shown, f"the bar: {shown!r}")


def check_flipped_bits(file, good):
    """A cached file with damage is compiled again: at once if that is found at the start, else by the next run."""
    header = good.index(b"QWENAOT\0")
    for section, at in {"code": 32, "manifest": 48, "tokenizer": 64, "weightChecksums": 96}.items():
        offset, size = struct.unpack_from("<QQ", good, header + at)
        file.write_bytes(flipped(good, offset + size // 2 if size > 1 << 16 else offset + size - 1))
        answers(f"a flipped bit of {section}", generate(), 1, "again: ", "is damaged")
    bad = flipped(good, struct.unpack_from("<QQ", good, header + 112)[0] + 5)
    for command in (("generate", MODEL, *IDS), ("embed", MODEL, "--ids", "5,6"), ("serve", MODEL, "--listen", "127.0.0.1:0")):
        file.write_bytes(bad)
        process = start(*command)
        errors = ""
        while line := process.stderr.readline():
            errors += line
            if "answers on" in line:
                process.terminate()
        process.communicate(timeout=60)
        checks.check(process.returncode in (1, 3) and f"{file} is damaged: the checksum of bytes" in errors, f"{command[0]}: {process.returncode} {errors}")
        answers(f"after damage that {command[0]} found", generate(), 1, "again: ", "is damaged")


def check_full_disk():
    """A cache without room is as one that cannot be written, where the temporary folder has room of its own."""
    FULL.touch()
    options = MODEL, "--context", "80"
    expect_error("a full disk", generate(*options), "No space left on device")
    checks.expect("it is tried once", compiles(), 1)
    others = [place for place in ("/dev/shm", "/tmp", "/var/tmp") if os.path.isdir(place) and os.stat(place).st_dev != CACHE.stat().st_dev]
    if others:
        with tempfile.TemporaryDirectory(dir=others[0]) as place:
            answers("a full disk and another one", generate(*options, TMPDIR=place), 2, "for this run only: the cache cannot be used (", "No space left on device")
            checks.expect("nothing is left on the other one", os.listdir(place), [])
    FULL.unlink()
    checks.expect("nothing is left on the full one", len(files(".json")), len(files()))
    answers("a disk with room again", generate(*options), 1)


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def check_damage():
    generate()
    compiles()
    file = max(files(), key=lambda path: path.stat().st_mtime)
    record = file.with_suffix(".json")
    good = file.read_bytes()
    version = good.index(b"QWENAOT\0") + 8
    file.write_bytes(good[:version] + struct.pack("<I", 1) + good[version + 4:])
    answers("another version of the format", generate(), 1, "again: ", "has format version 1")
    facts = json.loads(record.read_text())
    check_flipped_bits(file, good)
    record.write_text(json.dumps(facts | {"boot": "before"}))
    answers("after a boot", generate(), 0)
    checks.expect("a checked file is known", json.loads(record.read_text())["boot"], "")
    record.write_text(json.dumps(facts | {"boot": "before"}))
    file.write_bytes(good[:-10] + b"lost bytes")
    answers("a hole after a boot", generate(), 1, "again: ", "is damaged")
    record.unlink()
    answers("without a record", generate(), 0)
    if not WORK.is_relative_to("/dev/shm"):  # Such a file takes no more memory.
        record.write_text(json.dumps(facts | {"memory": 1 << 50}))
        expect_error("too much memory", generate(), "tiny needs 1024 TiB of memory when ", " are free")
    record.write_text(json.dumps(facts))
    huge = WORK / "huge"
    shutil.copytree(MODEL, huge)
    with open(huge / "more.safetensors", "wb") as sparse:
        sparse.truncate(1 << 42)
    write_compiler("# changed\n", COMPILER.replace('"weight_bytes": 3145728', '"weight_bytes": 1099511627776'))
    expect_error("too much memory for a compile", generate(huge), "huge needs 1.0 TiB of memory when ", " are free")
    write_compiler("# changed\n")
    checks.expect("it is not compiled", compiles(), 0)
    shutil.rmtree(huge)
    own = WORK / "own.qwen"
    own.write_bytes(good[:version] + struct.pack("<I", 1) + good[version + 4:])
    expect_error("an old file of a user", generate(own), "has format version 1", "recompile the model with the qwen-opt of this version", status=3)
    checks.expect("it stays", compiles(), 0)


def check_processes():
    SLOW.touch()
    two = [start("generate", MODEL, *IDS, "--context", "16") for _ in range(2)]
    first_lines = sorted(process.stderr.readline() for process in two)
    checks.expect("one compiles and one waits", [line.split()[1] for line in first_lines], ["compiles", "waits"])
    SLOW.unlink()
    results = [process.communicate(timeout=60) for process in two]
    checks.expect("two at once", [out for out, _ in results], [ANSWER] * 2)
    checks.expect("two at once compile once", compiles(), 1)

    def halves():
        return [path for path in (CACHE / "qwen-run").iterdir() if ".tmp" in path.name]

    SLOW.touch()
    killed = start("generate", MODEL, *IDS, "--context", "32")
    wait_for(halves)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    SLOW.unlink()
    checks.expect("kill -9 leaves no file with the final name", len(halves()), 1)
    compiles()
    answers("after kill -9", generate(MODEL, "--context", "32"), 1)
    checks.expect("the rest is gone", halves(), [])

    SLOW.touch()
    killed = start("generate", MODEL, *IDS, "--context", "64")
    wait_for(halves)
    killed.kill()
    # Its compiler has the pipe still.
    killed.wait()
    second = start("generate", MODEL, *IDS, "--context", "64")
    checks.check("waits for another qwen-run" in second.stderr.readline(), "the lock outlives a dead qwen-run")
    SLOW.unlink()
    out, _ = second.communicate(timeout=60)
    checks.expect("the compiler of a dead qwen-run goes on", (out, compiles()), (ANSWER, 1))
    killed.communicate()


def check_safety():
    folder, file = CACHE / "qwen-run", max(files(), key=lambda path: path.stat().st_mtime)
    generate()
    compiles()
    file = max(files(), key=lambda path: path.stat().st_mtime)
    folder.chmod(0o770)
    expect_error("a folder that others may write", generate(), f"{folder} may be written by other users")
    folder.chmod(0o700)
    file.chmod(0o602)
    expect_error("a file that others may write", generate(), f"{file} may be written by other users")
    file.chmod(0o600)
    for path in (folder, file) if os.geteuid() == 0 else ():
        os.chown(path, 12345, -1)
        expect_error("another owner", generate(), f"{path} belongs to user 12345")
        os.chown(path, 0, -1)
    moved = WORK / "moved"
    for path in (folder, file):
        path.rename(moved)
        path.symlink_to(moved)
        expect_error("a link", generate(), f"{path} is a symbolic link")
        path.unlink()
        moved.rename(path)
    checks.expect("what is refused is not compiled", compiles(), 0)

    for place in ({"XDG_CACHE_HOME": "/proc"}, {"XDG_CACHE_HOME": "", "HOME": "/proc"}, {"XDG_CACHE_HOME": "", "HOME": ""}):
        answers(f"no cache: {place}", generate(**place), 1, "for this run only: the cache cannot be used")
        checks.expect("no temporary file is left", list(TMP.iterdir()), [])
    for place in ({"XDG_CACHE_HOME": "/proc"}, {"XDG_CACHE_HOME": "", "HOME": ""}):
        expect_error(f"add without a cache: {place}", run("cache", "add", MODEL, **place), "the cache cannot be used (", "set XDG_CACHE_HOME")
        checks.expect(f"compiles of add without a cache: {place}", compiles(), 0)
    SLOW.touch()
    killed = start("generate", MODEL, *IDS, XDG_CACHE_HOME="/proc")
    wait_for(lambda: list(TMP.glob("qwen-run-*/*")))
    other = next(TMP.iterdir())
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    # That of a run that lives stays.
    alive = start("generate", MODEL, *IDS, XDG_CACHE_HOME="/proc")
    wait_for(lambda: list(TMP.glob("qwen-run-*/*")) and not other.exists())
    [kept] = TMP.iterdir()
    second = start("generate", MODEL, *IDS, XDG_CACHE_HOME="/proc")
    wait_for(lambda: len(list(TMP.glob("qwen-run-*/*"))) == 2)
    checks.check(kept.exists(), "the folder of a run that lives is lost")
    SLOW.unlink()
    checks.expect("runs beside a killed one", [process.communicate(timeout=60)[0] for process in (alive, second)], [ANSWER] * 2)
    checks.expect("no temporary folder is left", list(TMP.iterdir()), [])
    compiles()
    expect_error("no cache and no temporary folder", generate(XDG_CACHE_HOME="/proc", TMPDIR="/proc"), "the cache cannot be used (/proc/qwen-run",
                 "set XDG_CACHE_HOME or TMPDIR")


def check_names():
    alone = WORK / "alone"
    alone.mkdir()
    shutil.copy(BIN / "qwen-run", alone)
    nowhere = {"program": alone / "qwen-run", "PATH": "/nowhere"}
    answers("without qwen-opt, what is cached", generate(**nowhere), 0)
    expect_error("without qwen-opt", generate(MODEL, "--context", "128", **nowhere), "there is no qwen-opt beside qwen-run or in PATH",
                 f"qwen-opt {MODEL} -o tiny.qwen --context=128 --target ")
    answers("qwen-opt in PATH", generate(MODEL, "--context", "128", program=alone / "qwen-run", PATH=f"{BIN}:{ENVIRONMENT['PATH']}"), 1)
    expect_error("qwen-opt of another version", generate(MODEL, "--context", "192", SHOWN_VERSION="0.0"),
                 f"qwen-opt has version 0.0 when this qwen-run has {VERSION}; install both of one version")

    hub = WORK / "hub"
    model = hub / "models--Org--Tiny-1B"
    snapshot = model / "snapshots/0123abcd"
    (model / "blobs").mkdir(parents=True)
    (model / "refs").mkdir()
    snapshot.mkdir(parents=True)
    (model / "refs/main").write_text("0123abcd")
    for path in MODEL.iterdir():
        shutil.copy(path, model / "blobs" / path.name)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    answers("a name of Hugging Face", generate("Org/Tiny-1B", HF_HUB_CACHE=str(hub)), 1, "Tiny-1B: q4_0")
    hub.rename(WORK / "hf")
    (WORK / "hf").mkdir(exist_ok=True)
    (WORK / "huggingface").mkdir()
    (WORK / "hf").rename(WORK / "huggingface/hub")
    answers("HF_HOME", generate("Org/Tiny-1B", HF_HOME=str(WORK / "huggingface")), 0)
    main = WORK / "huggingface/hub/models--Org--Tiny-1B/refs/main"
    for revision in ("89ef", "../snapshots/0123abcd"):
        main.write_text(revision)
        expect_error("a snapshot that is missing", generate("Org/Tiny-1B", HF_HOME=str(WORK / "huggingface")),
                     f'{main} names the snapshot "{revision}", which is missing; `hf download Org/Tiny-1B` gets it', status=3)
    main.unlink()
    answers("one snapshot without refs/main", generate("Org/Tiny-1B", HF_HOME=str(WORK / "huggingface")), 0)
    expect_error("an unknown name", generate("Org/Other"), '"Org/Other" is neither a file nor a folder, and ',
                 "home/.cache" if "XDG_CACHE_HOME" not in ENVIRONMENT else "huggingface/hub/models--Org--Other is missing", status=3)

    ggufs = WORK / "ggufs"
    ggufs.mkdir()
    expect_error("an empty folder", generate(ggufs), "has no config.json and no GGUF file", status=3)
    shutil.copy(INPUTS / "gguf/qwen3-q4_k_m/model.gguf", ggufs / "a.gguf")
    answers("a folder with a GGUF file", generate(ggufs), 1, "a: q4_0")
    answers("that file", generate(ggufs / "a.gguf"), 0)
    for part in (INPUTS / "gguf/qwen3-split").glob("*.gguf"):
        shutil.copy(part, ggufs)
    expect_error("a folder with two models", generate(ggufs), "has several models, a.gguf, model-00001-of-00003.gguf; name one", status=3)
    split = ggufs / "model-00001-of-00003.gguf"
    answers("a split model", generate(split), 1)
    os.utime(ggufs / "model-00003-of-00003.gguf", (1, 1))
    answers("another part of it", generate(split), 1)

    chat = run(MODEL, "-n", "1")
    checks.check(chat[0] == 0 and any("tiny: q4_0" in line for line in chat[2]), f"qwen-run MODEL chats: {chat}")
    expect_error("no command and no model", run("nothing"), '"nothing" is neither a command nor a model: the commands are generate, chat, ', status=2)


def check_command():
    checks.expect("cache path", run("cache", "path")[1], f"{CACHE}/qwen-run\n")
    listed = json.loads(run("cache", "list", "--json")[1])
    checks.expect("cache list", sorted(entry["path"] for entry in listed), [str(path) for path in files()])
    checks.check(any(entry["options"] == "--context=4" and entry["model"] == str(MODEL) for entry in listed), f"cache list: {listed}")
    checks.expect("its lines", len(run("cache", "list")[1].splitlines()), len(listed))
    first, second = listed[0]["name"], listed[1]["name"]
    checks.expect("cache rm", run("cache", "rm", first, second + ".qwen")[0], 0)
    checks.expect("they are gone", [path for path in files() + files(".json") if path.stem in (first, second)], [])
    expect_error("cache rm of nothing", run("cache", "rm", "../x"), 'the cache has no "../x"')
    size = FILE.stat().st_size
    version = listed[-1]["name"].rsplit("-")[-1]
    left = [path for path in files() if path.stem.endswith(version)]
    # Within one second, in another order than the names.
    for order, path in enumerate(reversed(left)):
        os.utime(path, ns=(order, order))
    run("cache", "prune", "--max-size", str(2 * size + 1))
    checks.expect("cache prune keeps the last used", files(), left[:2])
    write_compiler("# changed again\n")
    run("cache", "prune")
    checks.expect("cache prune removes other versions", files() + files(".json"), [])


def check_compiler():
    """The real qwen-opt, where the network is out of reach if that is possible."""
    shutil.copy(INPUTS / "checkpoints/qwen3-tied-bf16/config.json", WORK)
    program = pathlib.Path(shutil.which("qwen-run"))
    quiet = ("unshare", "-n") if shutil.which("unshare") and not subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode else ()
    command = (*quiet, program) if quiet else (program,)
    model = INPUTS / "checkpoints/qwen3-tied-bf16"
    first, second = (run(*command[1:], "generate", model, *IDS, "--weights", "q4_0", program=command[0]) for _ in range(2))
    checks.check(first[0] == 0 and first[1] and "compiles qwen3-tied-bf16" in first[2][0] and len(first[2]) == 3, f"a real compile: {first}")
    advice = r"--calibrate would lower the loss of accuracy (\(KL of a small model: 0\.\d+, not 0\.\d+\) )?in .*, in about \d+ minutes? on this machine \(docs/quantization.md\)"
    checks.check(re.fullmatch(f"qwen-run: note: {advice}", first[2][1]), f"what a calibration would bring: {first}")
    checks.expect("and the second time", (second[0], second[1], len(second[2])), (0, first[1], 1))
    error = run("generate", model, *IDS, "--weights", "q9", program=program)
    expect_error("a format that is none", error, "qwen-run: --weights: q9 not in", status=2)

    # The lines of --progress.
    read, write = os.pipe()
    done = subprocess.run([shutil.which("qwen-opt"), model, "-o", WORK / "x.qwen", "--progress", str(write)], pass_fds=[write],
                          capture_output=True, text=True)
    os.close(write)
    lines = [json.loads(line) for line in os.fdopen(read).read().splitlines()]
    checks.expect("--progress", (done.returncode, len(own_lines(done.stderr))), (0, 1))
    checks.check(re.fullmatch(f"qwen-opt: note: {advice}", own_lines(done.stderr)[0]), f"the line of --progress: {done.stderr}")
    checks.expect("its stages", list(dict.fromkeys(line["stage"] for line in lines)), ["reading", "packing"])
    checks.expect("its end", lines[-1]["done"], lines[-1]["total"])


for folder in (BIN, TMP, WORK / "home"):
    folder.mkdir()
shutil.copy(shutil.which("qwen-run"), BIN)
write_compiler()
shutil.copytree(INPUTS / "checkpoints/qwen3-tied-bf16", MODEL)
ANSWER = run("generate", FILE, *IDS)[1]
assert ANSWER
check_cache()
check_terminal()
check_damage()
check_full_disk()
check_processes()
check_safety()
check_names()
check_command()
check_compiler()
checks.finish()
