//===- HeadAnswers.h - Answers of models with draft heads -------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_HEADANSWERS_H
#define QWEN_TEST_UNIT_HEADANSWERS_H

#include "engine/Batcher.h"
#include "engine/Engine.h"

#include <gtest/gtest.h>

namespace qwen::test {

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::optional<EndReason> end;

  bool operator==(const Answer &) const = default;
};

class HeadAnswers : public testing::Test {
protected:
  /// Answers requests 1, 2, ...
  std::vector<Answer> answerAll(Engine &engine, std::vector<Request> requests,
                                const BatcherOptions &rules) {
    Batcher batcher(engine, rules);
    std::vector<Answer> answers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Request &request = requests[i];
      Answer &to = answers[i];
      request.onToken = [&](const TokenEvent &event) {
        to.ids.push_back(event.id);
        to.logprobs.push_back(event.logprob);
        return true;
      };
      request.onEnd = [&](const Ending &ending) { to.end = ending.reason; };
      batcher.add(std::make_unique<Job>(std::move(request), i + 1,
                                        engine.manifest().model));
    }
    while (!batcher.isIdle())
      batcher.step();
    counts = batcher.counts();
    return answers;
  }

  BatcherCounts counts;
};

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_HEADANSWERS_H
