//===- CEval.cpp - C-Eval: questions of Chinese exams ---------------------===//
//
// Huang et al., "C-Eval: A Multi-Level Multi-Discipline Chinese Evaluation
// Suite for Foundation Models", 2023. Its validation split has answers.
//
//===----------------------------------------------------------------------===//

#include "tasks/Subjects.h"

using namespace qwen;
using namespace qwen::tasks;

TaskFamily qwen::tasks::makeCEval() {
  Exam exam = {"ceval-valid", 2, {&metric::acc, &metric::acc_norm}, "答案："};
  exam.question = "question";
  exam.answer = "answer";
  exam.files = [](const std::string &subject) -> std::vector<std::string> {
    return {"ceval/val/" + subject + "_val.csv",
            "ceval/" + subject + "/val.jsonl"};
  };
  exam.examples = [](const std::string &subject) -> std::vector<std::string> {
    return {"ceval/dev/" + subject + "_dev.csv",
            "ceval/" + subject + "/dev.jsonl"};
  };
  return examFamily(std::make_shared<const Exam>(std::move(exam)),
                    "以下是中国关于",
                    "的单项选择题，请选出其中的正确答案。\n\n",
                    {
#define QWEN_SUBJECT(Subject, Name) {#Subject, Name},
#include "tasks/CEvalSubjects.def"
                    },
                    "ceval");
}
