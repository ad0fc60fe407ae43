# make deb: build, and make a Debian package in build/.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

qwen_build(host qwen-opt qwen-run qwenrt-shared)
qwen_say("make a Debian package in build/")
qwen_step(${QWEN_TOOLS_DIR}/cpack --config build/host/CPackConfig.cmake -B build)
