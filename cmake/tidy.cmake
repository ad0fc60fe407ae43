# make tidy: clang-tidy over all sources of the programs.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

qwen_build(host tidy)
