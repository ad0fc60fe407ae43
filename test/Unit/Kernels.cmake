# KernelTest, and the kernels that it compares with the reference. The compiler of one
# build makes them; the tests of all builds use them.
if(QWEN_BUILD_COMPILER AND QWEN_FIXTURES_DIR STREQUAL "${CMAKE_BINARY_DIR}/test")
  set(kernels)
  # qwen_add_kernels(TARGET OPTIONS...): a file of KernelTest. Each level of
  # instructions has one with the kernels that the level below lacks.
  function(qwen_add_kernels target)
    set(file ${QWEN_FIXTURES_DIR}/kernels-${target}.so)
    add_custom_command(OUTPUT ${file} COMMAND make-kernels ${ARGN} ${target} ${file} DEPENDS make-kernels VERBATIM)
    set(kernels ${kernels} ${file} PARENT_SCOPE)
  endfunction()
  qwen_add_kernels(x86-64-v3)
  qwen_add_kernels(x86-64-v3+avxvnni --beyond x86-64-v3)
  qwen_add_kernels(x86-64-v4+avx512vnni+amx-int8 --beyond x86-64-v3)
  qwen_add_kernels(armv8-a)
  qwen_add_kernels(armv8.2-a+dotprod --beyond armv8-a)
  qwen_add_kernels(armv8.6-a+sve --beyond armv8.2-a+dotprod)
  # Kernels that this machine lacks, with models of their instructions.
  set(file ${QWEN_FIXTURES_DIR}/kernels-modelled.so)
  add_custom_command(OUTPUT ${file} COMMAND make-kernels --model x86-64-v4+avx512vnni+avxvnni+amx-int8 ${file}
                     DEPENDS make-kernels VERBATIM)
  list(APPEND kernels ${file})
  add_custom_target(kernels ALL DEPENDS ${kernels})
endif()

qwen_add_unit_test(KernelTest KernelTest.cpp BITS COMPUTES LINK qwenrt QwenVerify)
if(CMAKE_CROSSCOMPILING)
  set(kernel_tests KernelTest KernelTest.neoverse-n1)
  # The kernels that a Cortex-A72 cannot run.
  add_test(NAME KernelTest.neoverse-n1 COMMAND
           qemu-aarch64-static -cpu neoverse-n1 $<TARGET_FILE:KernelTest> --gtest_filter=*_neon_dotprod)
  # The same SVE code at several lengths of vectors, in bytes; in make test half of
  # the kernels at each.
  set(lengths 16 32)
  if(DEFINED ENV{QWEN_TEST_FULL})
    list(APPEND lengths 64 256)
  endif()
  foreach(bytes IN LISTS lengths)
    add_test(NAME KernelTest.sve${bytes} COMMAND
             qemu-aarch64-static -cpu max,sve-default-vector-length=${bytes} $<TARGET_FILE:KernelTest>
             --gtest_filter=*_sve:*_sve_i8mm)
    list(APPEND kernel_tests KernelTest.sve${bytes})
  endforeach()
  add_test(NAME KernelTest.i8mm COMMAND
           qemu-aarch64-static -cpu max $<TARGET_FILE:KernelTest> --gtest_filter=*_neon_i8mm)
  list(APPEND kernel_tests KernelTest.i8mm)
  set(kernels)
  foreach(target armv8-a armv8.2-a+dotprod armv8.6-a+sve)
    list(APPEND kernels ${QWEN_FIXTURES_DIR}/kernels-${target}.so)
  endforeach()
  list(JOIN kernels ":" kernels)
  set_tests_properties(${kernel_tests} PROPERTIES ENVIRONMENT "QWEN_KERNELS=${kernels};QWEN_MODELLED_KERNELS=")
  if(NOT DEFINED ENV{QWEN_TEST_FULL})
    set_property(TEST KernelTest.sve16 APPEND PROPERTY ENVIRONMENT "GTEST_TOTAL_SHARDS=2;GTEST_SHARD_INDEX=0")
    set_property(TEST KernelTest.sve32 APPEND PROPERTY ENVIRONMENT "GTEST_TOTAL_SHARDS=2;GTEST_SHARD_INDEX=1")
  endif()
else()
  # Two halves, because it is the longest program.
  set(kernel_environment "QWEN_KERNELS=${QWEN_FIXTURES_DIR}/kernels-x86-64-v3.so:${QWEN_FIXTURES_DIR}/kernels-x86-64-v3+avxvnni.so:${QWEN_FIXTURES_DIR}/kernels-x86-64-v4+avx512vnni+amx-int8.so;QWEN_MODELLED_KERNELS=${QWEN_FIXTURES_DIR}/kernels-modelled.so;GTEST_TOTAL_SHARDS=2")
  add_test(NAME KernelTest.half COMMAND KernelTest)
  set_tests_properties(KernelTest PROPERTIES ENVIRONMENT "${kernel_environment};GTEST_SHARD_INDEX=0")
  set_tests_properties(KernelTest.half PROPERTIES ENVIRONMENT "${kernel_environment};GTEST_SHARD_INDEX=1")
endif()
