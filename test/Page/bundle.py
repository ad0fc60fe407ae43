"""The committed bundle of the page is what web/ makes, byte for byte.

  bundle.py SOURCE BUILD

Copies web/ of SOURCE to BUILD and makes BUILD/dist there with the packages of the lock file, and BUILD/bare, which lacks DOMPurify: page.py
needs it. Says so and passes where the npm registry cannot be reached.
"""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "Integration"))
from packages import command  # noqa: E402

web, build = pathlib.Path(sys.argv[1]).resolve() / "web", pathlib.Path(sys.argv[2]).resolve()
lock, done = web / "package-lock.json", build / "installed.json"
if not shutil.which("npm"):
    sys.exit("npm is missing; `sh cmake/setup.sh tests` installs it")
build.mkdir(parents=True, exist_ok=True)
for old in build.iterdir():
    if old.name not in ("node_modules", done.name):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
shutil.copytree(web, build, ignore=shutil.ignore_patterns("node_modules", "dist"), dirs_exist_ok=True)
if not done.exists() or done.read_bytes() != lock.read_bytes():
    if not command(["npm", "ci", "--no-audit", "--no-fund", "--silent", "--fetch-retries", "0"], cwd=build):
        sys.exit(print("skipped: npm ci does not reach its registry"))
    shutil.copy(lock, done)
for arguments in (["dist"], ["bare", "--no-sanitizer"]):
    if not command(["node", "build.mjs", *arguments], cwd=build):
        sys.exit(f"build.mjs {' '.join(arguments)} failed")


def files(folder):
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


made, committed = files(build / "dist"), files(web / "dist")
different = sorted(name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))
size = sum(len(data) for data in committed.values())
print(f"{len(committed)} files, {size} bytes")
if different:
    sys.exit(f"web/dist is not what web/ makes: {', '.join(different)}; run `make web` and commit web/dist")
if size > 1.5e6:
    sys.exit(f"web/dist has {size} bytes when 1,500,000 are the most")
