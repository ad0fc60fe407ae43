//===- Cmmlu.cpp - CMMLU: questions of Chinese subjects -------------------===//
//
// Li et al., "CMMLU: Measuring massive multitask language understanding in
// Chinese", 2023.
//
//===----------------------------------------------------------------------===//

#include "tasks/Subjects.h"

using namespace qwen;
using namespace qwen::tasks;

TaskFamily qwen::tasks::makeCmmlu() {
  Exam exam = {"cmmlu", 1, {&metric::acc, &metric::acc_norm}, "答案："};
  exam.question = "Question";
  exam.answer = "Answer";
  exam.files = [](const std::string &subject) -> std::vector<std::string> {
    return {"cmmlu/test/" + subject + ".csv",
            "cmmlu/" + subject + "/test.jsonl"};
  };
  exam.examples = [](const std::string &subject) -> std::vector<std::string> {
    return {"cmmlu/dev/" + subject + ".csv", "cmmlu/" + subject + "/dev.jsonl"};
  };
  return examFamily(std::make_shared<const Exam>(std::move(exam)), "以下是关于",
                    "的单项选择题，请直接给出正确答案的选项。\n\n",
                    {
#define QWEN_SUBJECT(Subject, Name) {#Subject, Name},
#include "tasks/CmmluSubjects.def"
                    },
                    "");
}
