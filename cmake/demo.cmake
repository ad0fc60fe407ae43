# make demo: build, compile the small model for this CPU, generate text.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

set(bin ${QWEN_SOURCE_DIR}/build/host/bin)
set(artifact ${QWEN_SOURCE_DIR}/build/stories.qwen)

qwen_build(host qwen-opt qwen-run)
qwen_say("compile models/stories for this CPU into build/stories.qwen")
qwen_step(${bin}/qwen-opt models/stories -o ${artifact} --weights q4_0)
qwen_say("continue \"Once upon a time\"")
execute_process(COMMAND ${bin}/qwen-run generate ${artifact} -p "Once upon a time" -n 200 --seed 1
  RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "qwen-run failed (${result})")
endif()
