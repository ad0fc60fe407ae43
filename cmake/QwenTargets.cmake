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

# The first configuration of the build folder leaves this file.
set(QWEN_FIRST_CONFIGURED ${CMAKE_BINARY_DIR}/first-configured)
if(NOT EXISTS ${QWEN_FIRST_CONFIGURED})
  file(TOUCH ${QWEN_FIRST_CONFIGURED})
endif()

# With QWEN_UNITY, compiles the sources of each folder of a target as one file. A
# source that is edited later is compiled by itself from then on: the next edit of it
# compiles nothing else. SKIP_UNITY_BUILD_INCLUSION of a source says that it takes as
# long as all others of its folder.
function(qwen_unite target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(NOT QWEN_UNITY OR count EQUAL 1)
    return()
  endif()
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "of_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE file)
    if(${file} IS_NEWER_THAN ${QWEN_FIRST_CONFIGURED})
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# qwen_add_headers(NAME OPTIONS...): the headers that most libraries include, parsed
# once. They serve only targets that have the same options.
function(qwen_add_headers name)
  add_library(${name} STATIC ${CMAKE_SOURCE_DIR}/cmake/LibraryHeaders.cpp)
  qwen_target_defaults(${name})
  target_compile_options(${name} PRIVATE -Xclang -fno-pch-timestamp ${ARGN})
  target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/LibraryHeaders.h)
endfunction()

if(QWEN_UNITY)
  # Assertions and names of types would have the paths of the checkout, which
  # ccache makes relative in other builds.
  add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
  qwen_add_headers(headers)
endif()
if(QWEN_UNITY AND QWEN_QUICK)
  qwen_add_headers(cold-headers -O0)
endif()

# qwen_quicken(TARGET IS_COLD): with QWEN_UNITY, gives a target precompiled headers.
# They contain absolute paths, so checkouts could not share ccache's results: other
# builds do without. With QWEN_QUICK, does not optimize a target that is cold: no test
# waits for its own loops. QWEN_COLD of a preset lists libraries that are cold there.
function(qwen_quicken target is_cold)
  set(headers headers)
  if(QWEN_QUICK AND (is_cold OR target IN_LIST QWEN_COLD))
    set(headers cold-headers)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(QWEN_UNITY)
    # -fPIC is an option of libraries, and so of the headers.
    target_compile_options(${target} PRIVATE -fPIC -Xclang -fno-pch-timestamp)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# The rooms whose libraries a library of a room may link: the compiler needs nothing of
# the runtime, and calibration and export need both. Programs and tests may link all.
set(QWEN_ROOMS_OF_lib lib)
set(QWEN_ROOMS_OF_runtime lib runtime)
set(QWEN_ROOMS_OF_calibration calibration lib runtime)
set(QWEN_ROOMS_OF_export export lib runtime)

# qwen_room(FOLDER RESULT): the first part of its path in the project.
function(qwen_room folder result)
  file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${folder})
  string(REGEX REPLACE "/.*" "" room "${path}")
  set(${result} "${room}" PARENT_SCOPE)
endfunction()

# qwen_check_links(LIBRARY): fails if it links a library of a room that its own room may
# not link.
function(qwen_check_links library)
  get_target_property(folder ${library} SOURCE_DIR)
  qwen_room(${folder} room)
  if(NOT DEFINED QWEN_ROOMS_OF_${room})
    return()
  endif()
  get_target_property(links ${library} LINK_LIBRARIES)
  foreach(target ${links})
    if(NOT TARGET ${target})
      continue()
    endif()
    get_target_property(imported ${target} IMPORTED)
    get_target_property(folder ${target} SOURCE_DIR)
    qwen_room(${folder} other)
    if(NOT imported AND NOT other IN_LIST QWEN_ROOMS_OF_${room})
      message(FATAL_ERROR "${library} of ${room}/ links ${target} of ${other}/, but a library of ${room}/ may link only "
        "those of: ${QWEN_ROOMS_OF_${room}} (docs/architecture.md)")
    endif()
  endforeach()
endfunction()

# qwen_add_library(NAME SOURCES... [COLD] [OBJECT] [LINK TARGETS...])
function(qwen_add_library name)
  cmake_parse_arguments(ARG "COLD;OBJECT" "" "LINK" ${ARGN})
  set(kind STATIC)
  if(ARG_OBJECT)
    set(kind OBJECT)
  endif()
  add_library(${name} ${kind} ${ARG_UNPARSED_ARGUMENTS})
  qwen_target_defaults(${name})
  qwen_unite(${name})
  if(ARG_UNPARSED_ARGUMENTS MATCHES "\\.cpp")
    qwen_quicken(${name} ${ARG_COLD})
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  # Later, when all targets are known.
  cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL qwen_check_links ${name})")
endfunction()

# qwen_add_mlir_library(NAME SOURCES... [LINK TARGETS...]): a library that
# includes MLIR.
function(qwen_add_mlir_library name)
  qwen_add_library(${name} ${ARGN})
  target_link_libraries(${name} PUBLIC QwenMLIR QwenLLVM)
endfunction()

# qwen_add_executable(NAME SOURCES... [COLD] [LINK TARGETS...])
function(qwen_add_executable name)
  cmake_parse_arguments(ARG "COLD" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  qwen_target_defaults(${name})
  qwen_unite(${name})
  if(ARG_COLD)
    qwen_quicken(${name} ON)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()

# qwen_add_bitcode(SOURCE EMBEDS [OPTIMIZED] [ARCHS ARCHITECTURES...]
# [INCLUDE FOLDERS...]): compiles SOURCE.cpp to LLVM bitcode in
# SOURCE.<architecture>.bc, one file an architecture (both by default). Without
# OPTIMIZED nothing is optimized: constants and the target's features come later.
# EMBEDS, a source of the calling folder, embeds these files.
function(qwen_add_bitcode source embeds)
  cmake_parse_arguments(ARG "OPTIMIZED" "" "ARCHS;INCLUDE" ${ARGN})
  if(NOT ARG_ARCHS)
    set(ARG_ARCHS x86_64 aarch64)
  endif()
  set(level -O1 -Xclang -disable-llvm-passes)
  if(ARG_OPTIMIZED)
    set(level -O2)
  endif()
  set(flags -std=c++20 ${level} -ffreestanding -fno-exceptions -fno-rtti
    -fno-strict-aliasing -ffp-contract=off -fPIC ${QWEN_WARNINGS} -I${CMAKE_SOURCE_DIR}/include)
  foreach(folder ${ARG_INCLUDE})
    list(APPEND flags -isystem ${folder})
  endforeach()
  set(flags_aarch64 -mno-outline-atomics)
  # The bitcode has this name, and programs have the bitcode: not where it was built.
  file(RELATIVE_PATH file ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${source}.cpp)
  foreach(arch ${ARG_ARCHS})
    set(bitcode ${CMAKE_CURRENT_BINARY_DIR}/${source}.${arch}.bc)
    add_custom_command(OUTPUT ${bitcode}
      COMMAND ${CMAKE_CXX_COMPILER} --target=${arch}-linux-gnu ${flags} ${flags_${arch}} -emit-llvm
        -MD -MF ${bitcode}.d -c ${file} -o ${bitcode}
      WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} DEPENDS ${source}.cpp DEPFILE ${bitcode}.d VERBATIM)
    set_property(SOURCE ${embeds} APPEND PROPERTY OBJECT_DEPENDS ${bitcode})
  endforeach()
endfunction()

# qwen_add_embedding_library(NAME SOURCE): a library of one source that embeds
# files of the build folder.
function(qwen_add_embedding_library name source)
  qwen_add_library(${name} ${source} LINK QwenABI)
  target_compile_options(${name} PRIVATE -Wno-c23-extensions --embed-dir=${CMAKE_CURRENT_BINARY_DIR})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
  # A compiler cache does not see what #embed reads.
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
endfunction()
