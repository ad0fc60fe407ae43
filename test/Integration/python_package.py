"""Puts the Python package of a build in a folder: the modules as in a wheel, and links to the programs and the library.

  python_package.py SOURCE BUILD FOLDER
"""
import pathlib
import shutil
import sys

SOURCE, BUILD, FOLDER = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
sys.path.insert(0, str(SOURCE / "python"))
import wheel  # noqa: E402

shutil.rmtree(FOLDER, ignore_errors=True)
for name, data in wheel.modules(BUILD).items():
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
for name, target in {wheel.LIBRARY: "runtime/libqwenrt.so"}.items() | {f"{wheel.NAME}/bin/{program}": f"bin/{program}" for program in wheel.PROGRAMS}.items():
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(BUILD / target)
