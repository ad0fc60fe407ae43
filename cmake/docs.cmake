# make docs: refreshes docs/dialect.md and the IR in docs/stages.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

qwen_build(host docs)
