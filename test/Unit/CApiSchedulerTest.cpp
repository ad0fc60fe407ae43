//===- CApiSchedulerTest.cpp - Requests by the C interface ----------------===//

#include "HandmadeArtifact.h"
#include "LoadOptions.h"

#include "qwenrt.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;

namespace {
class CApiSchedulerTest : public testing::Test {
protected:
  void SetUp() override { path = HandmadeArtifact().write("scheduler.qwen"); }
  void TearDown() override { unlink(path.c_str()); }

  std::string path;
};

/// What the functions of a C request have been told.
struct Heard {
  std::vector<int32_t> drawn, prompt;
  std::vector<float> logprobs;
  int64_t progress = 0;
  qwen_ending ending = {};
  std::string error;
  std::atomic<int> endings = 0;
};
} // namespace

static qwen_request requestOf(Heard &heard,
                              const std::vector<int32_t> &prompt) {
  qwen_request request = {};
  request.size = sizeof(request);
  request.prompt = prompt.data();
  request.prompt_size = prompt.size();
  request.max_tokens = 3;
  request.user = &heard;
  request.on_token = [](void *user, const qwen_token_event *event) {
    auto &to = *static_cast<Heard *>(user);
    (event->is_prompt ? to.prompt : to.drawn).push_back(event->id);
    for (size_t i = 0; i < event->top_count; ++i)
      EXPECT_EQ(event->top[i].logprob, event->logprob);
    to.logprobs.push_back(event->logprob);
    return 1;
  };
  request.on_progress = [](void *user, const qwen_progress *progress) {
    static_cast<Heard *>(user)->progress = progress->done;
  };
  request.on_end = [](void *user, const qwen_ending *ending) {
    auto &to = *static_cast<Heard *>(user);
    to.ending = *ending;
    to.error = ending->text;
    ++to.endings;
    to.endings.notify_all();
  };
  return request;
}

// The code of the artifact only returns, so that all logits are 0.
TEST_F(CApiSchedulerTest, AnswersRequests) {
  const qwen_options options =
      loadOptions({.threads = 2, .sequences = 3, .kv_pages = 2});
  qwen_model *model = qwen_load(path.c_str(), &options);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const qwen_scheduler_options rules = {sizeof(rules), 1, 8, 0};
  qwen_scheduler *scheduler = qwen_scheduler_new(model, &rules);
  ASSERT_NE(scheduler, nullptr) << qwen_last_error();
  const std::vector<int32_t> prompt = {1, 2, 3};
  Heard heard;
  qwen_request request = requestOf(heard, prompt);
  request.logprobs = 1;
  request.top_logprobs = 2;
  request.score_prompt = 1;
  EXPECT_EQ(qwen_submit(scheduler, &request), 1);
  heard.endings.wait(0);
  EXPECT_EQ(heard.drawn, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(heard.prompt, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(heard.logprobs,
            std::vector<float>(5, static_cast<float>(-std::log(40.))));
  EXPECT_EQ(heard.progress, 3);
  EXPECT_EQ(heard.ending.reason, QWEN_END_LENGTH);
  EXPECT_EQ(heard.ending.prompt_tokens, 3);
  EXPECT_EQ(heard.ending.drawn_tokens, 3);

  // Three pages are more than the model has.
  Heard second, third;
  request = requestOf(second, prompt);
  request.max_tokens = -1;
  const int32_t zero = 0;
  request.stop_tokens = &zero;
  request.stop_count = 1;
  EXPECT_EQ(qwen_submit(scheduler, &request), 2);
  const std::vector<int32_t> nothing;
  request = requestOf(third, nothing);
  EXPECT_EQ(qwen_submit(scheduler, &request), QWEN_ERROR_GENERAL);
  const std::vector<int32_t> longer(101, 1), unknown = {40};
  request = requestOf(third, longer);
  EXPECT_EQ(qwen_submit(scheduler, &request), QWEN_ERROR_PAST_CONTEXT);
  request = requestOf(third, unknown);
  EXPECT_EQ(qwen_submit(scheduler, &request), QWEN_ERROR_INVALID_TOKEN);
  request.size = 8;
  EXPECT_EQ(qwen_submit(scheduler, &request), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(qwen_last_error(),
               "the prompt is empty: at least one token is needed");
  EXPECT_EQ(qwen_cancel(scheduler, 99), 0);
  second.endings.wait(0);
  EXPECT_EQ(second.ending.reason, QWEN_END_STOP);
  qwen_scheduler_free(scheduler);
  EXPECT_EQ(third.endings, 0);
  EXPECT_EQ(qwen_free_pages(model), 2);
  qwen_free(model);
  qwen_scheduler_free(nullptr);
}

TEST(CApiScheduler, TakesSnapshots) {
  std::string manifest = handmadeManifest();
  const std::string layers = R"("layers": [0]})";
  manifest.insert(manifest.find(layers) + layers.size(),
                  R"(, {"name": "state", "kind": "fixed", "layer_bytes": 64,
                        "layers": [0]})");
  const std::string path = HandmadeArtifact(manifest).write("state.qwen");
  for (const int64_t bytes : {0, 64, -1}) {
    const qwen_options options =
        loadOptions({.threads = 1, .sequences = 1, .snapshot_bytes = bytes});
    qwen_model *model = qwen_load(path.c_str(), &options);
    ASSERT_NE(model, nullptr) << qwen_last_error();
    const qwen_scheduler_options rules = {sizeof(rules), 0, 0, 6};
    qwen_scheduler *scheduler = qwen_scheduler_new(model, &rules);
    std::vector<int64_t> cached;
    // The answers have one token, which does not run.
    for (const std::vector<int32_t> &prompt :
         {std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8},
          {1, 2, 3, 5},
          {1, 2, 3, 4, 5, 6, 9},
          {1, 2, 3, 4, 5, 6, 9, 0}}) {
      Heard heard;
      qwen_request request = requestOf(heard, prompt);
      request.max_tokens = 1;
      request.snapshot_at = 3;
      EXPECT_GT(qwen_submit(scheduler, &request), 0);
      heard.endings.wait(0);
      cached.push_back(heard.ending.cached_tokens);
    }
    EXPECT_EQ(cached, bytes == 0
                          ? (std::vector<int64_t>{0, 3, 6, 7})
                          : (std::vector<int64_t>{0, 0, 0, bytes > 0 ? 7 : 0}));
    qwen_scheduler_free(scheduler);
    qwen_free(model);
  }
  unlink(path.c_str());
}

TEST_F(CApiSchedulerTest, SearchesWithBeams) {
  const qwen_options options = loadOptions({.threads = 1, .sequences = 3});
  qwen_model *model = qwen_load(path.c_str(), &options);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  qwen_scheduler *scheduler = qwen_scheduler_new(model, nullptr);
  const std::vector<int32_t> prompt = {1, 2, 3};
  Heard heard;
  qwen_request request = requestOf(heard, prompt);
  qwen_beams beams = {sizeof(beams), 0, 3, 0, 0, 1, 2};
  request.beams = &beams;
  request.on_answer = [](void *user, const qwen_beam_answer *answer) {
    auto &to = *static_cast<Heard *>(user);
    EXPECT_EQ(answer->count, 3u);
    EXPECT_NEAR(answer->score, -std::log(40.), 1e-6);
    to.drawn.push_back(answer->ids[2]);
    to.logprobs.push_back(answer->logprobs[2]);
  };
  EXPECT_GT(qwen_submit(scheduler, &request), 0) << qwen_last_error();
  heard.endings.wait(0);
  // All logits are equal: ties go to the lower beam, then to the lower id.
  EXPECT_EQ(heard.drawn, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(heard.logprobs,
            std::vector<float>(2, static_cast<float>(-std::log(40.))));
  EXPECT_EQ(heard.ending.reason, QWEN_END_LENGTH);
  EXPECT_EQ(heard.ending.drawn_tokens, 6);
  const auto refusal = [&] {
    EXPECT_EQ(qwen_submit(scheduler, &request), QWEN_ERROR_GENERAL);
    return std::string(qwen_last_error());
  };
  beams.num_beams = 4;
  EXPECT_EQ(refusal(), "num-beams is 4 when at most 3 sequences run");
  beams.num_beams = 0;
  EXPECT_EQ(refusal(), "num-beams is 0 when 1 to 64 is needed");
  beams.num_beams = 2;
  beams.early_stopping = 3;
  EXPECT_EQ(refusal(),
            "qwen_submit: early_stopping is 3 when 0 to 2 is needed");
  beams.early_stopping = 1;
  beams.answers = 3;
  EXPECT_EQ(refusal(),
            "the number of answers is 3 when 1 to num-beams (2) is needed");
  qwen_scheduler_free(scheduler);
  qwen_free(model);
}
