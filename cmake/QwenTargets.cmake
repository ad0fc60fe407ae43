# Targets with the project's include paths and warnings. The CMakeLists.txt of a
# folder lists the libraries that it links; a call of any other folder does not
# link (docs/architecture.md).

set(QWEN_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wno-unused-parameter -Werror)

function(qwen_target_defaults target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include)
  # The project's warnings do not apply to TableGen's output.
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
# includes MLIR. MLIR and LLVM themselves are linked as dylibs. Precompiled
# headers would save two seconds a file, but they contain absolute paths, so
# checkouts could not share ccache's results.
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
