# Steps that demo.cmake and test.cmake share. Run with cmake -P from the
# project's folder, by the cmake of .venv.

get_filename_component(QWEN_SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
get_filename_component(QWEN_TOOLS_DIR ${CMAKE_COMMAND} DIRECTORY)

# Runs a command with its stdout sent to stderr; stops everything if it fails.
function(qwen_step)
  execute_process(COMMAND sh -c "exec \"$@\" >&2" sh ${ARGN}
    WORKING_DIRECTORY ${QWEN_SOURCE_DIR} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

# Configures a preset, quietly where it has been before, and builds targets.
function(qwen_build preset)
  qwen_step(${CMAKE_COMMAND} --preset ${preset} -Wno-deprecated --log-level=WARNING)
  qwen_step(${CMAKE_COMMAND} --build --preset ${preset} -- --quiet ${ARGN})
endfunction()
