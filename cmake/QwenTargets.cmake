# Targets with the project's include paths and warnings. Which library may link
# which is stated in the CMakeLists.txt of each folder and is the only way that
# one folder reaches another's headers' definitions (docs/architecture.md).

set(QWEN_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wno-unused-parameter -Werror)

function(qwen_target_defaults target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include)
  # What TableGen writes is not held to the project's warnings.
  target_include_directories(${target} SYSTEM PUBLIC ${CMAKE_BINARY_DIR}/include)
  target_compile_options(${target} PRIVATE ${QWEN_WARNINGS})
endfunction()

# qwen_add_library(NAME SOURCES... [LINK TARGETS...])
function(qwen_add_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  qwen_target_defaults(${name})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()

# qwen_add_mlir_library(NAME SOURCES... [LINK TARGETS...]): a library that
# includes MLIR. MLIR and LLVM themselves are linked as dylibs. Headers are not
# precompiled: that saves two seconds a file, but the file it makes holds
# absolute paths, so that checkouts could not share ccache's results.
function(qwen_add_mlir_library name)
  qwen_add_library(${name} ${ARGN})
  target_link_libraries(${name} PUBLIC MLIR LLVM)
endfunction()

# qwen_add_executable(NAME SOURCES... [LINK TARGETS...])
function(qwen_add_executable name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  qwen_target_defaults(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()
