# make arm-test: build the compiler for this machine and for AArch64, and test the second one,
# emulated, beside the first, with the static runtime (docs/targets.md).
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

qwen_build(host qwen-opt qwen-run)
qwen_build(aarch64-compiler qwen-opt qwen-run)
qwen_build(aarch64 qwen-run)
qwen_say("test aarch64-compiler (its files and those of host)")
qwen_step(${QWEN_SOURCE_DIR}/.venv/bin/python test/Integration/arm_host.py . build/aarch64-compiler/test)
