# make install: build, and install below $DESTDIR and PREFIX.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

qwen_build(host qwen-opt qwen-run qwenrt-shared)
qwen_say("install below $ENV{DESTDIR}${PREFIX}")
qwen_step(${CMAKE_COMMAND} --install build/host --prefix ${PREFIX} --strip)
