# llguidance, which keeps answers to grammars (docs/decisions/0029-grammars.md), as
# the target `llguidance`. There is none where cargo, the standard library of the
# architecture or a crate is missing: the server then refuses grammars by name.
#
# Cargo compiles it once for each architecture, in build/llguidance, for all
# presets.
option(QWEN_GRAMMAR "Structured output of the server (needs cargo and rustc 1.87 or later)" ON)
# The licences of what programs contain (cmake/licences.py) need the crates.
file(REMOVE ${CMAKE_BINARY_DIR}/crates.json)
if(NOT QWEN_GRAMMAR)
  return()
endif()

set(triple ${CMAKE_SYSTEM_PROCESSOR}-unknown-linux-gnu)
set(crate ${CMAKE_SOURCE_DIR}/runtime/grammar/llguidance)

# qwen_find_cargo(RESULT): the first folder of PATH, or /usr/bin, whose rustc
# compiles for `triple` and knows the language of the crates.
function(qwen_find_cargo result)
  string(REPLACE ":" ";" folders "$ENV{PATH}:/usr/bin")
  foreach(folder IN LISTS folders)
    if(NOT EXISTS ${folder}/cargo OR NOT EXISTS ${folder}/rustc)
      continue()
    endif()
    execute_process(COMMAND ${folder}/rustc --version OUTPUT_VARIABLE version ERROR_QUIET)
    execute_process(COMMAND ${folder}/rustc --print target-libdir --target ${triple}
      OUTPUT_VARIABLE libraries OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    file(GLOB std ${libraries}/libstd-*.rlib)
    string(REGEX MATCH "[0-9]+\\.[0-9]+" version "${version}")
    if(std AND version VERSION_GREATER_EQUAL 1.87)
      set(${result} ${folder} PARENT_SCOPE)
      set(std ${std} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

qwen_find_cargo(cargo)
if(NOT cargo)
  message(STATUS "Without grammars: no cargo with rustc 1.87 for ${triple}")
  return()
endif()
# A registry that does not answer must not take minutes.
set(environment ${CMAKE_COMMAND} -E env CARGO_NET_RETRY=1 CARGO_HTTP_TIMEOUT=30 RUSTC=${cargo}/rustc CARGO_TARGET_DIR=${CMAKE_SOURCE_DIR}/build/llguidance)
# The crate is a shared library, too, which cargo links for nobody.
if(CMAKE_CROSSCOMPILING)
  string(MAKE_C_IDENTIFIER ${triple} variable)
  string(TOUPPER CARGO_TARGET_${variable}_LINKER variable)
  list(APPEND environment ${variable}=${CMAKE_LIBRARY_ARCHITECTURE}-gcc)
endif()

# The crates come from the registry once. All later commands are offline.
foreach(step list fetch list-again)
  if(step STREQUAL fetch)
    execute_process(COMMAND ${environment} ${cargo}/cargo fetch --quiet --locked --target ${triple} WORKING_DIRECTORY ${crate})
    continue()
  endif()
  execute_process(COMMAND ${environment} ${cargo}/cargo metadata --locked --offline --format-version 1 --filter-platform ${triple}
    WORKING_DIRECTORY ${crate} OUTPUT_VARIABLE crates ERROR_VARIABLE why RESULT_VARIABLE failed)
  if(NOT failed)
    break()
  endif()
endforeach()
if(failed)
  string(REGEX MATCH "error: [^\n]*" why "${why}")
  message(WARNING "Without grammars: the crates of ${crate}/Cargo.lock are not here: ${why}")
  return()
endif()
file(WRITE ${CMAKE_BINARY_DIR}/crates.json "${crates}")
file(WRITE ${CMAKE_BINARY_DIR}/rust-library "${std}")
string(REGEX MATCH "\"manifest_path\":\"([^\"]*/llguidance-[^\"]*)/Cargo.toml\"" found "${crates}")
set(headers ${CMAKE_MATCH_1})
# Messages of the crates name their sources: not by the folder of whoever built them.
cmake_path(GET headers PARENT_PATH sources)
list(APPEND environment CARGO_ENCODED_RUSTFLAGS=--remap-path-prefix=${sources}=crates)

set(library ${CMAKE_BINARY_DIR}/lib/libqwen_llguidance.a)
add_custom_command(OUTPUT ${library}
  COMMAND ${environment} ${cargo}/cargo build --quiet --release --locked --offline --target ${triple}
  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/build/llguidance/${triple}/release/libqwen_llguidance.a ${library}
  WORKING_DIRECTORY ${crate} DEPENDS ${crate}/Cargo.toml ${crate}/Cargo.lock ${crate}/lib.rs ${crate}/text.rs
  COMMENT "Compiling llguidance for ${triple}" VERBATIM)
add_custom_target(build-llguidance DEPENDS ${library})
add_library(llguidance STATIC IMPORTED GLOBAL)
add_dependencies(llguidance build-llguidance)
set_target_properties(llguidance PROPERTIES IMPORTED_LOCATION ${library} INTERFACE_INCLUDE_DIRECTORIES ${headers})
target_link_libraries(llguidance INTERFACE ${CMAKE_DL_LIBS} m)
