# Configuration of the lit tests. Paths come from lit.site.cfg.py in the build.
import os

import lit.formats

config.name = "qwen"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "Unit"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.build_dir, "test")

config.environment["PATH"] = os.pathsep.join(
    [os.path.join(config.build_dir, "bin"), config.llvm_tools_dir, os.environ["PATH"]]
)
config.environment["FILECHECK_OPTS"] = "--enable-var-scope --dump-input-filter=all"
config.substitutions.append(("%inputs", os.path.join(config.test_source_root, "Inputs")))
config.substitutions.append(("%source", config.source_dir))
config.substitutions.append(("%python", config.python))
# The runtime for AArch64 under emulation of one CPU: %qwen-run-a72 FILE ...
aarch64 = os.path.join(config.source_dir, "build", "aarch64", "bin", "qwen-run")
for name, cpu in (("a72", "cortex-a72"), ("n1", "neoverse-n1")):
    config.substitutions.append(
        ("%qwen-run-" + name, f"qemu-aarch64-static -cpu {cpu} {aarch64}")
    )
if os.path.exists(aarch64):
    config.available_features.add("aarch64-runtime")
