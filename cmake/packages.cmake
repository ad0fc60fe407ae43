# make packages: build, and make in build/packages an archive and a Debian package of each
# architecture. Two of one commit have the same bytes: programs are optimized, and sources
# united, whatever the build folder had before.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

execute_process(COMMAND git log -1 --format=%ct WORKING_DIRECTORY ${QWEN_SOURCE_DIR}
  OUTPUT_VARIABLE time OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(ENV{SOURCE_DATE_EPOCH} ${time})
set(ENV{QWEN_QUICK} "")
set(folder ${QWEN_SOURCE_DIR}/build/packages)
file(MAKE_DIRECTORY ${folder})

foreach(preset host aarch64-compiler)
  # Sources that were edited since leave the united ones (cmake/QwenTargets.cmake).
  file(REMOVE ${QWEN_SOURCE_DIR}/build/${preset}/first-configured)
  qwen_build(${preset} qwen-opt qwen-run qwenrt-shared)
  qwen_say("make packages of ${preset} in build/packages/")
  qwen_step(${CMAKE_COMMAND} -DBUILD=${QWEN_SOURCE_DIR}/build/${preset} -DFOLDER=${folder} -DLEVEL=19 -P cmake/archive.cmake)
  qwen_step(${QWEN_TOOLS_DIR}/cpack --config build/${preset}/CPackConfig.cmake -B ${folder})
  file(REMOVE_RECURSE ${folder}/_CPack_Packages)
endforeach()
