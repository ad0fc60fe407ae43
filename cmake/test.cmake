# make test: builds for this machine and for AArch64, runs all tests of both, and
# runs the tests that read files or run threads under sanitizers. Each fuzz
# target runs for 2 seconds. make test-full runs all tests under
# AddressSanitizer, fuzz targets for 30 seconds, and compiles each source by itself
# (docs/testing.md). QWEN_UNAFFECTED lists labels of tests that .ci/run leaves out.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

string(REPLACE " " ";" unaffected "$ENV{QWEN_UNAFFECTED}")
if(unaffected)
  list(JOIN unaffected "|" labels)
  set(without_labels -LE "^(${labels})$")
endif()

# qwen_test(PRESET TESTS [CTEST OPTIONS...])
function(qwen_test preset tests)
  qwen_say("test ${preset}, ${tests} (${QWEN_ABOUT_${preset}})")
  execute_process(COMMAND ${QWEN_TOOLS_DIR}/ctest --test-dir build/${preset} --output-on-failure -j2 ${without_labels} ${ARGN}
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
  qwen_build(apart)
else()
  set(asan_labels -L "reads|threads")
endif()
set(tsan_labels -L threads)

# The other builds' tests use kernels and models that the host's compiler makes,
# and the host's integration tests run the AArch64 runtime: build all first.
qwen_build(host)
set(label_aarch64 aarch64)
set(label_asan reads)
set(label_tsan threads)
foreach(preset aarch64 asan tsan)
  if(NOT label_${preset} IN_LIST unaffected)
    list(APPEND others ${preset})
    qwen_build(${preset} ${${preset}_targets})
  endif()
endforeach()
foreach(preset ${others})
  qwen_test(${preset} programs ${${preset}_labels})
endforeach()
qwen_test(host programs -E "^lit$")
qwen_test(host lit -R "^lit$")
if(failed)
  message(FATAL_ERROR "tests failed: ${failed}")
endif()
