"""What the package declares of qwenrt.h is what a C compiler says: sizes, offsets, values and functions.

  python_header.py SOURCE BUILD FOLDER
"""
import ctypes
import pathlib
import re
import sys

from checks import Checks, run
from qwen_compiler import _declarations
from qwen_compiler._library import library

SOURCE, BUILD, FOLDER = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
sys.path.insert(0, str(SOURCE / "python"))
import wheel  # noqa: E402

checks = Checks()
header = "".join(path.read_text() for path in sorted((SOURCE / "runtime/include").glob("*.h")))
code = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
structs = sorted(set(re.findall(r"^typedef struct (qwen_\w+) \{", code, re.M)))
constants = sorted(set(re.findall(r"^ *(QWEN_\w+) = ", code, re.M)))
checks.expect("structs", sorted(name for name in vars(_declarations) if name.startswith("qwen_")), structs)
checks.expect("constants", sorted(name for name in vars(_declarations) if name.startswith("QWEN_")), constants)
checks.expect("functions", sorted(_declarations.FUNCTIONS), sorted(set(re.findall(r"\b(qwen_\w+)\(", code))))
library()
wanted, lines = {}, []
for name in structs:
    struct = getattr(_declarations, name)
    wanted[f"sizeof({name})"] = ctypes.sizeof(struct)
    for member, type_ in struct._fields_:
        wanted[f"offsetof({name}, {member})"] = getattr(struct, member).offset
        wanted[f"sizeof((({name} *)0)->{member})"] = ctypes.sizeof(type_)
wanted |= {name: getattr(_declarations, name) for name in constants}
lines = [f'printf("%lld\\n", (long long)({expression}));' for expression in wanted]
(FOLDER / "layout.c").write_text('#include "qwenrt.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0;\n}\n")
run([wheel.cached(BUILD, "CMAKE_C_COMPILER"), FOLDER / "layout.c", "-I", SOURCE / "runtime/include", "-o", FOLDER / "layout"])
for (expression, ours), line in zip(wanted.items(), run([FOLDER / "layout"]).splitlines(), strict=True):
    checks.expect(expression, ours, int(line))
checks.finish()
