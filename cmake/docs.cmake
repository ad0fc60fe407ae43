# make docs: refreshes what docs/generate.py makes from the tools.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

qwen_build(host docs)
