# make docs: refreshes docs/dialect.md and the IR in docs/architecture.md and docs/stages.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

qwen_build(host docs)
