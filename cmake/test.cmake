# make test: builds for this machine and for AArch64, runs all tests of both, and
# runs the tests that read files or run threads under sanitizers. Each fuzz
# target runs for 2 seconds. make test-full runs all tests under
# AddressSanitizer, and fuzz targets for 30 seconds (docs/testing.md).
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

# qwen_test(PRESET [CTEST OPTIONS...])
function(qwen_test preset)
  qwen_say("test ${preset} (${QWEN_ABOUT_${preset}})")
  execute_process(COMMAND ${QWEN_TOOLS_DIR}/ctest --test-dir build/${preset} --output-on-failure -j2 ${ARGN}
    WORKING_DIRECTORY ${QWEN_SOURCE_DIR} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    set(failed ${failed} ${preset} PARENT_SCOPE)
  endif()
endfunction()

if(DEFINED ENV{QWEN_TEST_FULL})
  set(asan_targets all)
  if(NOT DEFINED ENV{QWEN_FUZZ_SECONDS})
    set(ENV{QWEN_FUZZ_SECONDS} 30)
  endif()
else()
  set(asan_labels -L "reads|threads")
endif()

# The other builds' tests use kernels and models that the host's compiler makes,
# and the host's integration tests run the AArch64 runtime: build all first.
qwen_build(host)
qwen_build(aarch64)
qwen_build(asan ${asan_targets})
qwen_build(tsan)
qwen_test(aarch64)
qwen_test(asan ${asan_labels})
qwen_test(tsan -L threads)
qwen_test(host)
if(failed)
  message(FATAL_ERROR "tests failed: ${failed}")
endif()
