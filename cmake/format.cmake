# ctest's "format": fails if clang-format would change a C or C++ file.
#   cmake -DCLANG_FORMAT=... -P cmake/format.cmake
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

foreach(folder calibration examples export include lib runtime test tools)
  file(GLOB_RECURSE found ${QWEN_SOURCE_DIR}/${folder}/*.h ${QWEN_SOURCE_DIR}/${folder}/*.cpp
       ${QWEN_SOURCE_DIR}/${folder}/*.c)
  list(APPEND files ${found})
endforeach()
qwen_step(${CLANG_FORMAT} --dry-run -Werror ${files})
