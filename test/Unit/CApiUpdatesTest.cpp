//===- CApiUpdatesTest.cpp - Updates of requests by the C interface -------===//

#include "HandmadeArtifact.h"
#include "LoadOptions.h"

#include "qwenrt.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <map>
#include <thread>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;

namespace {
// The code of the artifact only returns, so that all logits are 0 and all
// answers have token 0.
class CApiUpdatesTest : public testing::Test {
protected:
  void SetUp() override {
    path = HandmadeArtifact().write("updates.qwen");
    const qwen_options options = loadOptions({.threads = 1, .sequences = 2});
    model = qwen_load(path.c_str(), &options);
    ASSERT_NE(model, nullptr) << qwen_last_error();
    const qwen_scheduler_options rules = {sizeof(rules), 1, 2, 0};
    scheduler = qwen_scheduler_new(model, &rules);
    ASSERT_NE(scheduler, nullptr) << qwen_last_error();
  }
  void TearDown() override {
    qwen_scheduler_free(scheduler);
    qwen_free(model);
    unlink(path.c_str());
  }

  qwen_request request(int64_t channel, void *user = nullptr) const {
    qwen_request request = {};
    request.size = sizeof(request);
    request.prompt = prompt;
    request.prompt_size = 3;
    request.max_tokens = 3;
    request.user = user;
    request.updates = QWEN_UPDATES_ANSWER;
    request.channel = channel;
    return request;
  }
  /// The number of updates, which it waits for.
  int64_t next(int64_t channel, std::span<qwen_update> to,
               int64_t timeout = -1) {
    return qwen_scheduler_next(scheduler, channel, to.data(), to.size(),
                               timeout);
  }
  /// Reads the updates of a channel up to the end of a request. Returns the
  /// reason.
  int32_t readEnd(int64_t channel) {
    qwen_update update;
    while (next(channel, {&update, 1}) == 1)
      if (update.kind == QWEN_UPDATE_END)
        return static_cast<const qwen_ending *>(update.data)->reason;
    return -1;
  }

  static constexpr int32_t prompt[] = {1, 2, 3};
  std::string path;
  qwen_model *model = nullptr;
  qwen_scheduler *scheduler = nullptr;
};
} // namespace

TEST_F(CApiUpdatesTest, TellWhatFunctionsWouldGet) {
  int user = 0;
  qwen_request asked = request(7, &user);
  asked.updates = QWEN_UPDATES_PROGRESS;
  asked.logprobs = 1;
  asked.top_logprobs = 2;
  asked.score_prompt = 1;
  const int64_t id = qwen_submit(scheduler, &asked);
  EXPECT_EQ(id, 1) << qwen_last_error();
  std::vector<int32_t> kinds, ids;
  while (kinds.empty() || kinds.back() != QWEN_UPDATE_END) {
    qwen_update updates[4];
    const int64_t count = next(7, updates);
    ASSERT_GT(count, 0) << qwen_last_error();
    for (const qwen_update &update :
         std::span(updates, static_cast<size_t>(count))) {
      EXPECT_EQ(update.request, id);
      EXPECT_EQ(update.user, &user);
      kinds.push_back(update.kind);
      if (update.kind == QWEN_UPDATE_PROGRESS) {
        const auto *progress = static_cast<const qwen_progress *>(update.data);
        EXPECT_EQ(progress->size, sizeof(*progress));
        EXPECT_EQ(progress->done, 3);
      } else if (update.kind == QWEN_UPDATE_TOKEN) {
        const auto *token = static_cast<const qwen_token_event *>(update.data);
        EXPECT_EQ(token->size, sizeof(*token));
        EXPECT_EQ(token->is_prompt, token->position < 3);
        ids.push_back(token->id);
        ASSERT_EQ(token->top_count, 2u);
        EXPECT_EQ(token->logprob, static_cast<float>(-std::log(40.)));
        EXPECT_EQ(token->top[1].id, 1);
        EXPECT_EQ(token->top[1].logprob, token->logprob);
      } else {
        const auto *ending = static_cast<const qwen_ending *>(update.data);
        EXPECT_EQ(ending->size, sizeof(*ending));
        EXPECT_EQ(ending->reason, QWEN_END_LENGTH);
        EXPECT_STREQ(ending->text, "");
        EXPECT_EQ(ending->prompt_tokens, 3);
        EXPECT_EQ(ending->drawn_tokens, 3);
      }
    }
  }
  EXPECT_EQ(kinds, (std::vector<int32_t>{0, 0, 1, 0, 0, 0, 3}));
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 3, 0, 0, 0}));
}

TEST_F(CApiUpdatesTest, ComeAfterTheFunctionOfTheEnd) {
  std::atomic<int> endings = 0;
  qwen_request asked = request(0, &endings);
  asked.on_end = [](void *user, const qwen_ending *ending) {
    EXPECT_EQ(ending->reason, QWEN_END_LENGTH);
    ++*static_cast<std::atomic<int> *>(user);
  };
  EXPECT_GT(qwen_submit(scheduler, &asked), 0) << qwen_last_error();
  EXPECT_EQ(readEnd(0), QWEN_END_LENGTH);
  EXPECT_EQ(endings, 1);
}

TEST_F(CApiUpdatesTest, MayAppearWithTheEndAlone) {
  // It draws when it is let.
  std::atomic<int> draws = 0;
  qwen_request asked = request(0, &draws);
  asked.updates = QWEN_UPDATES_AT_END;
  asked.on_draw = [](void *user, const qwen_draw *) {
    auto &drawn = *static_cast<std::atomic<int> *>(user);
    const int now = ++drawn;
    drawn.notify_all();
    if (now == 3)
      drawn.wait(3);
    return -1;
  };
  EXPECT_GT(qwen_submit(scheduler, &asked), 0) << qwen_last_error();
  for (int seen = draws; seen < 3; seen = draws)
    draws.wait(seen);
  qwen_update updates[8];
  EXPECT_EQ(next(0, updates, 10), 0);
  ++draws;
  draws.notify_all();
  ASSERT_EQ(next(0, updates), 4);
  EXPECT_EQ(updates[2].kind, QWEN_UPDATE_TOKEN);
  EXPECT_EQ(updates[3].kind, QWEN_UPDATE_END);
}

TEST_F(CApiUpdatesTest, TellTheAnswersOfABeamSearch) {
  const qwen_beams beams = {sizeof(beams), 0, 2, 0, 0, 1, 2};
  qwen_request asked = request(0);
  asked.beams = &beams;
  ASSERT_GT(qwen_submit(scheduler, &asked), 0) << qwen_last_error();
  qwen_update updates[3];
  for (qwen_update &update : updates)
    ASSERT_EQ(next(0, {&update, 1}), 1);
  // Each is valid until the next call only, but the last one is.
  EXPECT_EQ(updates[0].kind, QWEN_UPDATE_ANSWER);
  EXPECT_EQ(updates[1].kind, QWEN_UPDATE_ANSWER);
  ASSERT_EQ(updates[2].kind, QWEN_UPDATE_END);
  asked = request(0);
  asked.beams = &beams;
  ASSERT_GT(qwen_submit(scheduler, &asked), 0) << qwen_last_error();
  ASSERT_EQ(next(0, {updates, 1}), 1);
  const auto *answer = static_cast<const qwen_beam_answer *>(updates[0].data);
  ASSERT_EQ(answer->count, 3u);
  EXPECT_EQ(answer->ids[2], 0);
  EXPECT_EQ(answer->logprobs[2], static_cast<float>(-std::log(40.)));
}

TEST_F(CApiUpdatesTest, BelongToAChannelAndToOneReader) {
  qwen_update update;
  EXPECT_EQ(next(1, {&update, 1}, 0), 0);
  EXPECT_EQ(next(1, {&update, 1}, 1), 0);
  const qwen_request first = request(1), second = request(INT64_MIN);
  ASSERT_GT(qwen_submit(scheduler, &first), 0);
  ASSERT_GT(qwen_submit(scheduler, &second), 0);
  EXPECT_EQ(readEnd(INT64_MIN), QWEN_END_LENGTH);
  EXPECT_EQ(readEnd(1), QWEN_END_LENGTH);
  EXPECT_EQ(next(1, {&update, 1}, 0), 0);
  EXPECT_EQ(next(INT64_MIN, {&update, 1}, 0), 0);
}

TEST_F(CApiUpdatesTest, NobodyReadsMoreThanTheQueueHas) {
  // Two that run and two that wait.
  for (int i = 0; i < 4; ++i) {
    const qwen_request asked = request(i % 2);
    EXPECT_GT(qwen_submit(scheduler, &asked), 0) << qwen_last_error();
  }
  const qwen_request asked = request(0);
  // Also when all have ended.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(qwen_submit(scheduler, &asked), QWEN_ERROR_QUEUE_FULL);
    EXPECT_STREQ(qwen_last_error(), "the queue is full: the ends of 4 requests "
                                    "have not been read");
    qwen_counts counts = {};
    counts.size = sizeof(counts);
    while (counts.drawn_tokens < 12)
      qwen_scheduler_counts(scheduler, &counts);
  }
  EXPECT_EQ(readEnd(1), QWEN_END_LENGTH);
  EXPECT_GT(qwen_submit(scheduler, &asked), 0) << qwen_last_error();
  for (const int channel : {0, 0, 0, 1})
    EXPECT_EQ(readEnd(channel), QWEN_END_LENGTH);
}

TEST_F(CApiUpdatesTest, AWrongRequestTakesNoPlace) {
  qwen_request asked = request(0);
  asked.prompt_size = 0;
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(qwen_submit(scheduler, &asked), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(qwen_last_error(),
               "the prompt is empty: at least one token is needed");
  asked = request(0);
  asked.updates = 8;
  EXPECT_EQ(qwen_submit(scheduler, &asked), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(
      qwen_last_error(),
      "qwen_submit: updates are 8 when a sum of 0, 1, 2 and 4 is needed");
  asked = request(0);
  asked.on_token = [](void *, const qwen_token_event *) { return 1; };
  EXPECT_EQ(qwen_submit(scheduler, &asked), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(qwen_last_error(),
               "qwen_submit: updates take the place of on_token, on_progress "
               "and on_answer, which must be NULL");
  qwen_update update;
  EXPECT_EQ(qwen_scheduler_next(scheduler, 0, &update, 0, 0), -1);
  EXPECT_EQ(qwen_scheduler_next(scheduler, 0, nullptr, 1, 0), -1);
  EXPECT_EQ(qwen_scheduler_next(nullptr, 0, &update, 1, 0), -1);
  EXPECT_STREQ(qwen_last_error(), "qwen_scheduler_next: scheduler is NULL");
  EXPECT_EQ(qwen_scheduler_close(nullptr), -1);
}

TEST_F(CApiUpdatesTest, CancellingWakesTheReader) {
  struct Gate {
    std::atomic<int> draws = 0, isCancelled = 0;
  } gate;
  qwen_request asked = request(3, &gate);
  asked.max_tokens = -1;
  asked.on_draw = [](void *user, const qwen_draw *) {
    auto &to = *static_cast<Gate *>(user);
    ++to.draws;
    to.draws.notify_all();
    to.isCancelled.wait(0);
    return 5;
  };
  const int64_t id = qwen_submit(scheduler, &asked);
  ASSERT_GT(id, 0) << qwen_last_error();
  std::atomic<int32_t> reason = -1;
  std::thread reader([&] { reason = readEnd(3); });
  gate.draws.wait(0);
  EXPECT_EQ(qwen_cancel(scheduler, id), 0);
  gate.isCancelled = 1;
  gate.isCancelled.notify_all();
  reader.join();
  EXPECT_EQ(reason, QWEN_END_CANCELLED);
}

TEST_F(CApiUpdatesTest, ClosingEndsRequestsAndReaders) {
  std::vector<std::thread> readers;
  std::atomic<int> ends = 0, closed = 0;
  for (int64_t channel : {0, 0, 1})
    readers.emplace_back([&, channel] {
      qwen_update updates[8];
      int64_t count;
      while ((count = next(channel, updates)) > 0)
        for (int64_t i = 0; i < count; ++i)
          ends += updates[i].kind == QWEN_UPDATE_END;
      closed += count == QWEN_ERROR_CANCELLED;
    });
  qwen_request asked = request(0);
  asked.max_tokens = -1;
  int submitted = 0;
  for (int i = 0; i < 4; ++i)
    submitted += qwen_submit(scheduler, &asked) > 0;
  EXPECT_EQ(qwen_scheduler_close(scheduler), 0);
  EXPECT_EQ(qwen_submit(scheduler, &asked), QWEN_ERROR_CANCELLED);
  EXPECT_STREQ(qwen_last_error(), "the scheduler has ended");
  for (std::thread &reader : readers)
    reader.join();
  EXPECT_EQ(ends, submitted);
  EXPECT_EQ(closed, 3);
  asked = request(0);
  asked.updates = 0;
  EXPECT_EQ(qwen_submit(scheduler, &asked), QWEN_ERROR_CANCELLED);
  EXPECT_EQ(qwen_scheduler_close(scheduler), 0);
  qwen_update update;
  EXPECT_EQ(next(0, {&update, 1}), QWEN_ERROR_CANCELLED);
}

/// Whether a thread of this process sleeps.
static bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name = text.rfind(')');
  return name != std::string::npos && text.substr(name, 3) == ") S";
}

TEST_F(CApiUpdatesTest, FreeingEndsAReaderThatWaits) {
  std::atomic<pid_t> thread = 0;
  std::atomic<int64_t> result = 0;
  std::thread reader([&] {
    qwen_update update;
    thread = gettid();
    result = next(2, {&update, 1});
  });
  while (!thread || !sleeps(thread))
    std::this_thread::yield();
  qwen_scheduler_free(scheduler);
  reader.join();
  scheduler = nullptr;
  EXPECT_EQ(result, QWEN_ERROR_CANCELLED);
}

TEST_F(CApiUpdatesTest, ManyThreadsSubmitAndRead) {
  constexpr int kThreads = 3, kRequests = 40;
  std::mutex mutex;
  std::map<int64_t, std::vector<int32_t>> kindsOf;
  std::vector<std::thread> readers, writers;
  for (int i = 0; i < kThreads; ++i)
    readers.emplace_back([&, i] {
      qwen_update updates[3];
      int64_t count;
      while ((count = next(i % 2, updates)) > 0) {
        const std::lock_guard lock(mutex);
        for (int64_t j = 0; j < count; ++j)
          kindsOf[updates[j].request].push_back(updates[j].kind);
      }
    });
  std::atomic<int> submitted = 0;
  for (int i = 0; i < kThreads; ++i)
    writers.emplace_back([&, i] {
      for (int j = 0; j < kRequests;) {
        const qwen_request asked = request((i + j) % 2);
        if (qwen_submit(scheduler, &asked) > 0)
          ++submitted, ++j;
        else
          std::this_thread::yield();
      }
    });
  for (std::thread &writer : writers)
    writer.join();
  EXPECT_EQ(qwen_scheduler_close(scheduler), 0);
  for (std::thread &reader : readers)
    reader.join();
  EXPECT_EQ(submitted, kThreads * kRequests);
  EXPECT_EQ(kindsOf.size(), static_cast<size_t>(submitted));
  for (auto &[id, kinds] : kindsOf)
    EXPECT_EQ(std::ranges::count(kinds, QWEN_UPDATE_END), 1) << id;
}
