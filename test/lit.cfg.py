# Configuration of the lit tests. Paths come from lit.site.cfg.py in the build.
import os
import shutil

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
# What the clients of package registries need to trust them, on machines that have it.
for name in ("NODE_EXTRA_CA_CERTS", "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
if "QWEN_TRAIN_PYTHON" in os.environ:
    config.environment["QWEN_TRAIN_PYTHON"] = os.environ["QWEN_TRAIN_PYTHON"]
# Tests compile hundreds of models, most with the same kernels.
config.environment["QWEN_CODE_CACHE"] = os.path.join(config.test_exec_root, "code-cache")
config.substitutions.append(("%inputs", os.path.join(config.test_source_root, "Inputs")))
config.substitutions.append(("%build", config.build_dir))
config.substitutions.append(("%source", config.source_dir))
config.substitutions.append(("%python", config.python))
# Made once by the host's build: kernels-TARGET.so, and models/stories compiled for this machine.
config.substitutions.append(("%fixtures", config.fixtures_dir))
config.substitutions.append(("%stories-f32", os.path.join(config.fixtures_dir, "stories-f32.qwen")))
config.substitutions.append(("%stories", os.path.join(config.fixtures_dir, "stories.qwen")))
# Programs for AArch64, run under emulation.
aarch64 = os.path.join(config.source_dir, "build", "aarch64", "bin")
for name in ("qwen-run", "answer-hashes"):
    config.substitutions.append((f"%aarch64-{name}", os.path.join(aarch64, name)))
if os.path.exists(os.path.join(aarch64, "qwen-run")):
    config.available_features.add("aarch64-runtime")
if os.path.exists(os.path.join(config.build_dir, "bin", "bench-kernels")):
    config.available_features.add("google-benchmark")
# What cmake/setup.sh installs for the tests.
if shutil.which("tmux"):
    config.available_features.add("tmux")
if config.grammars == "ON":
    config.available_features.add("grammars")
if config.portable == "ON":
    config.available_features.add("portable")
if "-fsanitize" in config.cxx_flags:
    config.available_features.add("sanitized")
# Labels of tests that .ci/run leaves out, because no change affects them (changes.py).
unaffected = os.environ.get("QWEN_UNAFFECTED", "")
config.environment["QWEN_UNAFFECTED"] = unaffected
config.available_features.update({"bits", "page"} - set(unaffected.split()))
if "QWEN_TEST_FULL" in os.environ:
    config.environment["QWEN_TEST_FULL"] = os.environ["QWEN_TEST_FULL"]
    config.available_features.add("full")
