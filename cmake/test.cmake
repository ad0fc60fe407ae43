# make test: build for this machine and for AArch64, run all tests of both, and
# the tests of whatever reads files or runs threads under sanitizers. Each fuzz
# target runs for 5 seconds, and for 15 in make test-full.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

# The AArch64 tests use kernels that the host's compiler makes, and the host's
# integration tests run the AArch64 runtime: build both first.
qwen_build(host)
qwen_build(aarch64)
qwen_build(asan)
qwen_build(tsan)
if(DEFINED ENV{QWEN_TEST_FULL} AND NOT DEFINED ENV{QWEN_FUZZ_SECONDS})
  set(ENV{QWEN_FUZZ_SECONDS} 15)
endif()
foreach(preset aarch64 asan tsan host)
  message(STATUS "tests of ${preset}")
  execute_process(COMMAND ${QWEN_TOOLS_DIR}/ctest --test-dir build/${preset} --output-on-failure -j2
    WORKING_DIRECTORY ${QWEN_SOURCE_DIR} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(APPEND failed ${preset})
  endif()
endforeach()
if(failed)
  message(FATAL_ERROR "tests failed: ${failed}")
endif()
