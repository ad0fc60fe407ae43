# Steps that demo.cmake, test.cmake and their like share. Run with cmake -P from
# the project's folder, by the cmake of .venv.

get_filename_component(QWEN_SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
get_filename_component(QWEN_TOOLS_DIR ${CMAKE_COMMAND} DIRECTORY)

# Prints what the next stage does, on stderr. The file that QWEN_STAGES names gets its
# start, in seconds, and its name.
function(qwen_say text)
  message(NOTICE "== ${text}")
  if(DEFINED ENV{QWEN_STAGES})
    string(TIMESTAMP seconds %s)
    string(REGEX REPLACE " \\(.*\\)" "" name "${text}")
    file(APPEND $ENV{QWEN_STAGES} "${seconds} ${name}\n")
  endif()
endfunction()

# Runs a command with its stdout sent to stderr; stops everything if it fails.
# execute_process gives it pipes. If the Makefile's 3 is a terminal, the command
# gets that and shows its progress.
function(qwen_step)
  execute_process(COMMAND sh -c "if [ -t 3 ]; then exec \"$@\" >&3 2>&3; else exec \"$@\" >&2; fi" sh ${ARGN}
    WORKING_DIRECTORY ${QWEN_SOURCE_DIR} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

# Configures a preset, quietly where it has been before, and builds targets. Ninja
# rewrites one line on a terminal, and prints a line a file elsewhere.
function(qwen_build preset)
  list(JOIN ARGN ", " targets)
  if(targets)
    string(PREPEND targets ": ")
  endif()
  if(NOT EXISTS ${QWEN_SOURCE_DIR}/build/${preset}/.ninja_log)
    string(APPEND targets ", from nothing, which takes minutes")
  endif()
  qwen_say("build ${preset} (${QWEN_ABOUT_${preset}})${targets}")
  qwen_step(${CMAKE_COMMAND} --preset ${preset} -Wno-deprecated --log-level=WARNING)
  qwen_step(${CMAKE_COMMAND} --build --preset ${preset} -- ${ARGN})
endfunction()

# What the stages of qwen_build say: the names of the presets.
file(READ ${QWEN_SOURCE_DIR}/CMakePresets.json presets)
string(JSON count LENGTH "${presets}" configurePresets)
math(EXPR last "${count} - 1")
foreach(index RANGE ${last})
  string(JSON preset GET "${presets}" configurePresets ${index} name)
  string(JSON QWEN_ABOUT_${preset} ERROR_VARIABLE without GET "${presets}" configurePresets ${index} displayName)
endforeach()
