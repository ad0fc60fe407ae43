# make tidy: clang-tidy over all sources of the programs, one by one. In .ci/run, over
# those that changed, with others of their folder (test/tidy.py).
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

set(preset apart)
if(DEFINED ENV{QWEN_ONLY_CHANGED})
  set(preset host)
endif()
qwen_build(${preset} tidy)
