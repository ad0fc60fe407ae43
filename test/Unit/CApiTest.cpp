//===- CApiTest.cpp - The C interface -------------------------------------===//

#include "HandmadeArtifact.h"
#include "LoadOptions.h"

#include "qwenrt.h"

#include "qwen/Support/Version.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <thread>
#include <unistd.h>

using namespace qwen;
using namespace qwen::test;

namespace {
class CApiTest : public testing::Test {
protected:
  void SetUp() override { path = HandmadeArtifact().write("capi.qwen"); }
  void TearDown() override { unlink(path.c_str()); }

  std::string path;
};
} // namespace

TEST_F(CApiTest, LoadsRunsAndSamples) {
  const qwen_options options = loadOptions({.threads = 2, .sequences = 3});
  qwen_model *model = qwen_load(path.c_str(), &options);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  EXPECT_EQ(qwen_vocab_size(model), 40);
  EXPECT_EQ(qwen_context_size(model), 100);
  EXPECT_EQ(qwen_is_end(model, 36), 1);
  EXPECT_EQ(qwen_is_end(model, 35), 0);
  EXPECT_EQ(qwen_tokenize(model, "x", 1, 1, nullptr, 0), -1);
  EXPECT_EQ(qwen_last_error(), path +
                                   " has no tokenizer, because its "
                                   "checkpoint had none: only token ids work");
  EXPECT_EQ(qwen_token_id(model, "<|im_end|>"), -1);
  EXPECT_EQ(qwen_last_error(), path +
                                   " has no tokenizer, because its "
                                   "checkpoint had none: only token ids work");
  const std::string manifest = handmadeManifest();
  std::string info(manifest.size() + 1, '-');
  EXPECT_EQ(qwen_model_info(model, info.data(), info.size()),
            std::ssize(manifest));
  EXPECT_EQ(info, manifest + "-");

  EXPECT_EQ(qwen_open_sequence(model), 0);
  const int32_t sequence = qwen_open_sequence(model);
  EXPECT_EQ(sequence, 1);
  const qwen_token tokens[] = {{1, sequence, 0, 0}, {2, sequence, 1, 1}};
  std::vector<float> logits(40, -1);
  EXPECT_EQ(qwen_forward(model, tokens, 2, logits.data()), 0);
  EXPECT_EQ(logits, std::vector<float>(40, 0)); // the code only returns
  EXPECT_EQ(qwen_forward(model, tokens, 2, logits.data()), -1);
  EXPECT_STREQ(qwen_last_error(),
               "position 0 of sequence 1 does not follow: 2 is next");
  EXPECT_EQ(qwen_truncate_sequence(model, sequence, 0), 0);
  EXPECT_EQ(qwen_forward(model, tokens, 2, logits.data()), 0);

  EXPECT_EQ(qwen_branch_sequence(model, sequence, 2), 2);
  const qwen_token next = {3, 2, 2, 1};
  EXPECT_EQ(qwen_forward(model, &next, 1, logits.data()), 0);
  EXPECT_EQ(qwen_branch_sequence(model, sequence, 2), QWEN_ERROR_NO_SEQUENCE);
  EXPECT_STREQ(qwen_last_error(), "all 3 sequences are open");

  qwen_sampling sampling = {};
  sampling.size = sizeof(sampling);
  EXPECT_EQ(qwen_default_sampling(model, &sampling), 0);
  EXPECT_EQ(sampling.size, sizeof(sampling));
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 50);
  sampling.repetition_penalty = 2;
  qwen_sampler *sampler = qwen_sampler_new(model, &sampling, 0);
  ASSERT_NE(sampler, nullptr);
  logits[5] = 3;
  logits[6] = 2;
  logits[38] = 9; // padding
  EXPECT_EQ(qwen_sample(sampler, logits.data(), 2), 5);
  EXPECT_EQ(qwen_sample(sampler, logits.data(), 3), 6); // 5 is already seen
  EXPECT_EQ(qwen_sampler_accept(sampler, 40), -1);
  EXPECT_STREQ(qwen_last_error(), "token id 40 is not in the vocabulary of 40");
  qwen_sampler *copy = qwen_sampler_copy(sampler);
  ASSERT_NE(copy, nullptr);
  logits[7] = 1;
  EXPECT_EQ(qwen_sample(copy, logits.data(), 4), 5); // 3 / 2
  qwen_sampler_free(copy);
  const int32_t ids[] = {5, 0};
  float logprobs[2];
  const double sum =
      std::log(std::exp(3.) + std::exp(2.) + std::exp(9.) + std::exp(1.) + 36);
  EXPECT_EQ(qwen_logprobs(model, logits.data(), ids, 2, logprobs), 0);
  EXPECT_NEAR(logprobs[0], 3 - sum, 1e-6);
  EXPECT_NEAR(logprobs[1], -sum, 1e-6);
  int32_t top[50];
  EXPECT_EQ(qwen_top_tokens(model, logits.data(), top, 3), 3);
  EXPECT_EQ(std::vector<int32_t>(top, top + 3),
            (std::vector<int32_t>{38, 5, 6}));
  EXPECT_EQ(qwen_top_tokens(model, logits.data(), top, 50), 40);
  qwen_sampler_free(sampler);
  const qwen_bias bias = {9, 5};
  sampling.logit_bias = &bias;
  sampling.logit_bias_count = 1;
  sampler = qwen_sampler_new(model, &sampling, 0);
  EXPECT_EQ(qwen_sample(sampler, logits.data(), 2), 9);
  qwen_sampler_free(sampler);
  sampling.logit_bias = nullptr;
  EXPECT_EQ(qwen_sampler_new(model, &sampling, 0), nullptr);
  EXPECT_STREQ(qwen_last_error(),
               "qwen_sampler_new: sampling: logit_bias is NULL");
  sampling.logit_bias_count = 0;
  const char *const names[] = {"top_k", "infill"};
  sampling.samplers = names;
  sampling.sampler_count = 2;
  EXPECT_EQ(qwen_sampler_new(model, &sampling, 0), nullptr);
  EXPECT_NE(std::string(qwen_last_error())
                .find("there is no sampler \"infill\": the samplers are"),
            std::string::npos);
  // The repetition penalty is off, and greedy draws stay greedy.
  sampling.sampler_count = 1;
  sampler = qwen_sampler_new(model, &sampling, 0);
  ASSERT_NE(sampler, nullptr) << qwen_last_error();
  for (int64_t position : {2, 3})
    EXPECT_EQ(qwen_sample(sampler, logits.data(), position), 5);
  qwen_sampler_free(sampler);
  sampling.samplers = nullptr;
  EXPECT_EQ(qwen_sampler_new(model, &sampling, 0), nullptr);
  EXPECT_STREQ(qwen_last_error(),
               "qwen_sampler_new: sampling: samplers is NULL");
  sampling.sampler_count = 0;
  // Texts need a tokenizer.
  const char *const words[] = {"a", nullptr};
  sampling.bad_words = words;
  sampling.bad_word_count = 1;
  EXPECT_EQ(qwen_sampler_new(model, &sampling, 0), nullptr);
  EXPECT_NE(std::string(qwen_last_error()).find("has no tokenizer"),
            std::string::npos);
  sampling.bad_word_count = 2;
  EXPECT_EQ(qwen_sampler_new(model, &sampling, 0), nullptr);
  EXPECT_STREQ(qwen_last_error(),
               "qwen_sampler_new: sampling: bad_words[1] is NULL");
  sampling.bad_word_count = 0;
  sampling.top_p = 2;
  EXPECT_EQ(qwen_sampler_new(model, &sampling, 0), nullptr);

  EXPECT_EQ(qwen_close_sequence(model, sequence), 0);
  EXPECT_EQ(qwen_close_sequence(model, sequence), -1);
  qwen_free(model);
  qwen_free(nullptr);
  qwen_sampler_free(nullptr);
}

TEST_F(CApiTest, ASequenceStopsAlone) {
  const qwen_options options =
      loadOptions({.threads = 2, .sequences = 3, .kv_pages = 2});
  qwen_model *model = qwen_load(path.c_str(), &options);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  EXPECT_EQ(qwen_pages(model), 2);
  for (int32_t sequence = 0; sequence < 3; ++sequence)
    EXPECT_EQ(qwen_open_sequence(model), sequence);
  const qwen_token tokens[] = {
      {40, 0, 0, 1}, {1, 1, 0, 1}, {1, 2, 0, 0}, {1, 0, 1, 1}, {2, 2, 1, 1}};
  std::vector<float> logits(160, -1);
  EXPECT_EQ(qwen_forward(model, tokens, 5, logits.data()),
            QWEN_ERROR_INVALID_TOKEN);
  EXPECT_EQ(qwen_free_pages(model), 0);
  // The rows of the sequence that stopped are as before.
  std::vector<float> expected(160, 0);
  std::fill_n(expected.begin(), 40, -1.f);
  std::fill_n(expected.begin() + 80, 40, -1.f);
  EXPECT_EQ(logits, expected);
  qwen_failure failure;
  EXPECT_EQ(qwen_failures(model, &failure, 1), 1);
  EXPECT_EQ(failure.sequence, 0);
  EXPECT_EQ(failure.error, QWEN_ERROR_INVALID_TOKEN);
  EXPECT_EQ(failure.position, 0);
  char text[100] = {};
  EXPECT_EQ(qwen_describe_failure(model, 0, text, 99), 64);
  EXPECT_STREQ(text, qwen_last_error());
  EXPECT_EQ(qwen_describe_failure(model, 1, text, 99), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(qwen_last_error(), "qwen_describe_failure: index is 1 when 1 "
                                  "sequences failed");
  EXPECT_EQ(qwen_forward(model, tokens, 1, logits.data()),
            QWEN_ERROR_INVALID_TOKEN);
  EXPECT_EQ(qwen_failures(model, nullptr, 0), 1);
  // Calls have 8 tokens.
  size_t told = 0;
  EXPECT_EQ(qwen_set_progress(
                model,
                [](void *user, size_t done) {
                  *static_cast<size_t *>(user) = done;
                  return done < 16 ? 1 : 0;
                },
                &told),
            0);
  std::vector<qwen_token> many;
  for (int32_t i = 0; i < 40; ++i)
    many.push_back({1, 1, 1 + i, 0});
  EXPECT_EQ(qwen_forward(model, many.data(), many.size(), nullptr),
            QWEN_ERROR_CANCELLED);
  EXPECT_EQ(told, 16u);
  EXPECT_STREQ(qwen_last_error(), "sequence 1 was cancelled at position 17");
  qwen_set_progress(model, nullptr, nullptr);
  EXPECT_EQ(qwen_forward(model, many.data() + 16, 24, nullptr), 0);
  const qwen_token good = {1, 0, 0, 0};
  EXPECT_EQ(qwen_forward(model, &good, 1, nullptr), QWEN_ERROR_NO_PAGE);
  qwen_free(model);
}

TEST_F(CApiTest, SaysWhyAModelDoesNotLoad) {
  EXPECT_EQ(qwen_load("/nowhere", nullptr), nullptr);
  EXPECT_STREQ(qwen_last_error(),
               "cannot read /nowhere: No such file or directory");
  const auto error = [&](const qwen_options &options) {
    EXPECT_EQ(qwen_load(path.c_str(), &options), nullptr);
    return std::string(qwen_last_error());
  };
  const auto sized = [](uint32_t size) {
    qwen_options options = {};
    options.size = size;
    return options;
  };
  const std::string threads = " when 0 (the default) to 1024 is needed";
  EXPECT_EQ(error(loadOptions({.threads = 100000})),
            "qwen_load: threads is 100000" + threads);
  EXPECT_EQ(error(loadOptions({.threads = -1})),
            "qwen_load: threads is -1" + threads);
  EXPECT_EQ(error(loadOptions({.sequences = -1})),
            "qwen_load: sequences is -1 when 0 (the default) to 65536 is "
            "needed");
  EXPECT_EQ(error(loadOptions({.check = 3})),
            "qwen_load: check is 3 when 0 (the default) to 2 is needed");
  EXPECT_EQ(error(loadOptions({.kv_pages = -1})),
            "qwen_load: kv_pages is -1 when 0 (the default) to 2147483647 is "
            "needed");
  EXPECT_EQ(error(sized(3)),
            "qwen_load: options: size is 3 when that of the struct is needed");
  EXPECT_EQ(error(sized(8192)),
            "qwen_load: options: size is 8192 when that of the struct is "
            "needed");
}

TEST_F(CApiTest, NoSizeMeansAllDefaults) {
  qwen_options wrong = loadOptions({.threads = -1, .sequences = 5, .check = 7});
  wrong.size = 0;
  const qwen_options options[] = {wrong, loadOptions({})};
  for (const qwen_options &each : options) {
    qwen_model *model = qwen_load(path.c_str(), &each);
    ASSERT_NE(model, nullptr) << qwen_last_error();
    EXPECT_EQ(qwen_open_sequence(model), 0);
    EXPECT_EQ(qwen_open_sequence(model), QWEN_ERROR_NO_SEQUENCE);
    qwen_free(model);
  }
  qwen_model *model = qwen_load(path.c_str(), nullptr);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  // Uses the model's own options (greedy), not a temperature of 1000.
  qwen_sampling sampling = {};
  sampling.temperature = 1000;
  qwen_sampler *sampler = qwen_sampler_new(model, &sampling, 0);
  ASSERT_NE(sampler, nullptr) << qwen_last_error();
  std::vector<float> logits(40, 0);
  logits[5] = 1;
  for (int64_t position = 0; position < 20; ++position)
    EXPECT_EQ(qwen_sample(sampler, logits.data(), position), 5);
  EXPECT_EQ(qwen_sample(sampler, std::vector<float>(40, NAN).data(), 0), -1);
  qwen_sampler_free(sampler);
  sampler = qwen_sampler_new(model, nullptr, 0);
  EXPECT_EQ(qwen_sample(sampler, logits.data(), 0), 5);
  qwen_sampler_free(sampler);
  qwen_free(model);
}

TEST_F(CApiTest, RefusesOptionsOfTheSamplerOutOfRange) {
  qwen_model *model = qwen_load(path.c_str(), nullptr);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const auto expectError = [&](const qwen_sampling &sampling, std::string name,
                               const char *needed) {
    std::ranges::replace(name, '_', '-');
    EXPECT_EQ(qwen_sampler_new(model, &sampling, 0), nullptr) << name;
    const std::string error = qwen_last_error();
    EXPECT_EQ(error.rfind(name + " is ", 0), 0U) << error;
    EXPECT_NE(error.find(std::string(" when ") + needed + " is needed"),
              std::string::npos)
        << error;
  };
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      ...)                                                     \
  for (double number : {double{NAN}, -1., 0., 1.5, 3., 1000.}) {               \
    if (std::is_integral_v<Type> && std::isnan(number))                        \
      continue;                                                                \
    [[maybe_unused]] const auto value = static_cast<Type>(number);             \
    if (std::isfinite(number) && (Valid))                                      \
      continue;                                                                \
    qwen_sampling sampling = {};                                               \
    sampling.size = sizeof(sampling);                                          \
    ASSERT_EQ(qwen_default_sampling(model, &sampling), 0);                     \
    sampling.Name = value;                                                     \
    expectError(sampling, #Name, Needed);                                      \
  }
#include "qwen/ABI/SamplerOptions.def"
  qwen_free(model);
}

TEST_F(CApiTest, ANullArgumentIsAnError) {
  const auto expectNull = [](int64_t result, const std::string &name) {
    EXPECT_EQ(result, -1) << name;
    EXPECT_EQ(qwen_last_error(), name + " is NULL");
  };
  EXPECT_EQ(qwen_load(nullptr, nullptr), nullptr);
  EXPECT_STREQ(qwen_last_error(), "qwen_load: path is NULL");
  expectNull(qwen_finish_check(nullptr), "qwen_finish_check: model");
  expectNull(qwen_vocab_size(nullptr), "qwen_vocab_size: model");
  expectNull(qwen_context_size(nullptr), "qwen_context_size: model");
  expectNull(qwen_model_info(nullptr, nullptr, 0), "qwen_model_info: model");
  expectNull(qwen_token_id(nullptr, "a"), "qwen_token_id: model");
  expectNull(qwen_is_end(nullptr, 0), "qwen_is_end: model");
  expectNull(qwen_tokenize(nullptr, "", 0, 1, nullptr, 0),
             "qwen_tokenize: model");
  expectNull(qwen_detokenize(nullptr, nullptr, 0, nullptr, 0),
             "qwen_detokenize: model");
  expectNull(qwen_open_sequence(nullptr), "qwen_open_sequence: model");
  expectNull(qwen_branch_sequence(nullptr, 0, 0),
             "qwen_branch_sequence: model");
  expectNull(qwen_close_sequence(nullptr, 0), "qwen_close_sequence: model");
  expectNull(qwen_truncate_sequence(nullptr, 0, 0),
             "qwen_truncate_sequence: model");
  expectNull(qwen_failures(nullptr, nullptr, 0), "qwen_failures: model");
  expectNull(qwen_describe_failure(nullptr, 0, nullptr, 0),
             "qwen_describe_failure: model");
  expectNull(qwen_render_chat(nullptr, "", 0, nullptr, 0),
             "qwen_render_chat: model");
  expectNull(qwen_encode_chat(nullptr, "", 0, 0, nullptr, 0),
             "qwen_encode_chat: model");
  expectNull(qwen_pages(nullptr), "qwen_pages: model");
  EXPECT_EQ(qwen_sampler_copy(nullptr), nullptr);
  expectNull(qwen_logprobs(nullptr, nullptr, nullptr, 0, nullptr),
             "qwen_logprobs: model");
  expectNull(qwen_top_tokens(nullptr, nullptr, nullptr, 0),
             "qwen_top_tokens: model");
  expectNull(qwen_set_progress(nullptr, nullptr, nullptr),
             "qwen_set_progress: model");
  EXPECT_EQ(qwen_scheduler_new(nullptr, nullptr), nullptr);
  EXPECT_STREQ(qwen_last_error(), "qwen_scheduler_new: model is NULL");
  expectNull(qwen_submit(nullptr, nullptr), "qwen_submit: scheduler");
  expectNull(qwen_cancel(nullptr, 0), "qwen_cancel: scheduler");
  expectNull(qwen_scheduler_counts(nullptr, nullptr),
             "qwen_scheduler_counts: scheduler");
  expectNull(qwen_free_pages(nullptr), "qwen_free_pages: model");
  expectNull(qwen_forward(nullptr, nullptr, 0, nullptr), "qwen_forward: model");
  expectNull(qwen_default_sampling(nullptr, nullptr),
             "qwen_default_sampling: model");
  expectNull(qwen_hidden_size(nullptr), "qwen_hidden_size: model");
  expectNull(qwen_end_tokens(nullptr, 0, nullptr, 0), "qwen_end_tokens: model");
  expectNull(qwen_encode_embedding(nullptr, "", 0, nullptr, 0),
             "qwen_encode_embedding: model");
  expectNull(qwen_embedding(nullptr, 0, nullptr), "qwen_embedding: hidden");
  expectNull(qwen_encode_rerank(nullptr, nullptr, "", "", nullptr, 0),
             "qwen_encode_rerank: model");
  expectNull(qwen_rerank_score(nullptr, nullptr, nullptr),
             "qwen_rerank_score: model");
  EXPECT_EQ(qwen_parser_new(nullptr, nullptr), nullptr);
  EXPECT_STREQ(qwen_last_error(), "qwen_parser_new: model is NULL");
  expectNull(qwen_parser_feed(nullptr, nullptr, 0), "qwen_parser_feed: parser");
  expectNull(qwen_parser_finish(nullptr), "qwen_parser_finish: parser");
  expectNull(qwen_parser_event(nullptr, nullptr), "qwen_parser_event: parser");
  expectNull(qwen_parser_state(nullptr, nullptr), "qwen_parser_state: parser");
  qwen_parser_free(nullptr);
  EXPECT_EQ(qwen_template_new(nullptr, "", 0), nullptr);
  EXPECT_STREQ(qwen_last_error(), "qwen_template_new: model is NULL");
  expectNull(qwen_template_render(nullptr, "", 0, nullptr, 0),
             "qwen_template_render: chat_template");
  expectNull(qwen_template_encode(nullptr, "", 0, 0, nullptr, 0),
             "qwen_template_encode: chat_template");
  qwen_template_free(nullptr);
  expectNull(qwen_weight_format_at(0, nullptr),
             "qwen_weight_format_at: format");
  expectNull(qwen_quantize_rows(nullptr, nullptr, 0, 0, nullptr),
             "qwen_quantize_rows: format");
  expectNull(qwen_quantize_rows("q4_0", nullptr, 0, 0, nullptr),
             "qwen_quantize_rows: parts");
  qwen_threads_free(nullptr);

  qwen_model *model = qwen_load(path.c_str(), nullptr);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  int32_t id = 0;
  char byte = 0;
  expectNull(qwen_model_info(model, nullptr, 1), "qwen_model_info: json");
  expectNull(qwen_token_id(model, nullptr), "qwen_token_id: name");
  expectNull(qwen_tokenize(model, nullptr, 1, 1, &id, 1),
             "qwen_tokenize: text");
  expectNull(qwen_tokenize(model, "a", 1, 1, nullptr, 1), "qwen_tokenize: ids");
  expectNull(qwen_detokenize(model, nullptr, 1, &byte, 1),
             "qwen_detokenize: ids");
  expectNull(qwen_detokenize(model, &id, 1, nullptr, 1),
             "qwen_detokenize: text");
  qwen_token token = {1, qwen_open_sequence(model), 0, 1};
  expectNull(qwen_forward(model, nullptr, 1, nullptr), "qwen_forward: tokens");
  expectNull(qwen_forward(model, &token, 1, nullptr), "qwen_forward: rows");
  token.want = 0;
  EXPECT_EQ(qwen_forward(model, &token, 1, nullptr), 0);
  expectNull(qwen_default_sampling(model, nullptr),
             "qwen_default_sampling: sampling");
  EXPECT_EQ(qwen_sampler_new(nullptr, nullptr, 0), nullptr);
  EXPECT_STREQ(qwen_last_error(), "qwen_sampler_new: model is NULL");
  expectNull(qwen_sampler_accept(nullptr, 0), "qwen_sampler_accept: sampler");
  expectNull(qwen_sample(nullptr, nullptr, 0), "qwen_sample: sampler");
  qwen_sampler *sampler = qwen_sampler_new(model, nullptr, 0);
  expectNull(qwen_sample(sampler, nullptr, 0), "qwen_sample: logits");
  qwen_sampler_free(sampler);
  qwen_free(model);
}

// Two models on two threads of the caller.
TEST_F(CApiTest, ModelsShareMemoryAndThreads) {
  const auto load = [&](int64_t maxMemory) {
    const qwen_options options =
        loadOptions({.threads = 2, .kv_pages = 10, .max_memory = maxMemory});
    return qwen_load(path.c_str(), &options);
  };
  ASSERT_EQ(load(1), nullptr);
  const std::string error = qwen_last_error(),
                    needs = "handmade needs at least ";
  ASSERT_TRUE(error.starts_with(needs)) << error;
  EXPECT_TRUE(error.ends_with(" when max_memory allows 1 bytes")) << error;
  // With a page.
  const int64_t least = std::stoll(error.substr(needs.size()));
  qwen_model *const models[] = {load(2 * least + int64_t{12} * 8192), load(0)};
  ASSERT_TRUE(models[0] && models[1]) << qwen_last_error();
  EXPECT_EQ(qwen_pages(models[0]), 10);
  EXPECT_EQ(qwen_pages(models[1]), 3);
  EXPECT_EQ(load(0), nullptr);
  {
    std::vector<std::jthread> callers;
    for (qwen_model *model : models)
      callers.emplace_back([model] {
        const int32_t sequence = qwen_open_sequence(model);
        std::vector<float> row(40, -1);
        for (int64_t position = 0; position < 90; ++position) {
          const qwen_token token = {1, sequence, position, QWEN_WANT_LOGITS};
          EXPECT_EQ(qwen_forward(model, &token, 1, row.data()), 0);
        }
        EXPECT_EQ(row, std::vector<float>(40, 0)); // the code only returns
      });
  }
  for (qwen_model *model : models)
    qwen_free(model);
  qwen_model *alone = load(0);
  ASSERT_NE(alone, nullptr) << qwen_last_error();
  EXPECT_EQ(qwen_pages(alone), 10);
  qwen_free(alone);
}

TEST_F(CApiTest, ModelsNameTheirThreads) {
  // A thread of a pool besides that of the caller.
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         {});
  };
  const auto before = threads();
  qwen_threads *pool = qwen_threads_new(2);
  ASSERT_NE(pool, nullptr) << qwen_last_error();
  const auto with = threads();
  qwen_options options = loadOptions({.check = QWEN_CHECK_OFF});
  options.pool = pool;
  qwen_model *const models[] = {qwen_load(path.c_str(), &options),
                                qwen_load(path.c_str(), &options)};
  ASSERT_TRUE(models[0] && models[1]) << qwen_last_error();
  EXPECT_EQ(threads(), with);
  EXPECT_LE(with, before + 1);
  options.threads = 1;
  EXPECT_EQ(qwen_load(path.c_str(), &options), nullptr);
  EXPECT_STREQ(qwen_last_error(), "qwen_load: pool and threads are both set");
  // Models keep the threads.
  qwen_threads_free(pool);
  for (qwen_model *model : models) {
    const qwen_token token = {1, qwen_open_sequence(model), 0,
                              QWEN_WANT_LOGITS};
    std::vector<float> row(40, -1);
    EXPECT_EQ(qwen_forward(model, &token, 1, row.data()), 0);
    EXPECT_EQ(row, std::vector<float>(40, 0));
    qwen_free(model);
  }
  for (const int32_t count : {-1, 1025}) {
    EXPECT_EQ(qwen_threads_new(count), nullptr);
    EXPECT_EQ(qwen_last_error(), "qwen_threads_new: threads is " +
                                     std::to_string(count) +
                                     " when 0 (the default) to 1024 is needed");
  }
}

TEST_F(CApiTest, DamagedWeightsStopTheModel) {
  HandmadeArtifact damaged;
  damaged.bytes.back() ^= 1;
  damaged.write("capi.qwen");
  const auto load = [&](int32_t check) {
    const qwen_options options = loadOptions({.check = check});
    return qwen_load(path.c_str(), &options);
  };
  EXPECT_EQ(load(QWEN_CHECK_NOW), nullptr);
  EXPECT_NE(std::string(qwen_last_error()).find("is damaged"),
            std::string::npos);
  for (int32_t check : {QWEN_CHECK_BACKGROUND, QWEN_CHECK_OFF}) {
    qwen_model *model = load(check);
    ASSERT_NE(model, nullptr) << qwen_last_error();
    const int32_t expected = check == QWEN_CHECK_OFF ? 0 : -1;
    const qwen_token token = {1, qwen_open_sequence(model), 0, 0};
    EXPECT_EQ(qwen_forward(model, &token, 1, nullptr), expected);
    EXPECT_EQ(qwen_finish_check(model), expected);
    qwen_free(model);
  }
}

// Programs are compiled with these structs.
TEST(CApi, StructsKeepTheirSizes) {
  EXPECT_EQ(sizeof(qwen_options), 88u);
  EXPECT_EQ(sizeof(qwen_token), 24u);
  EXPECT_EQ(sizeof(qwen_failure), 16u);
  EXPECT_EQ(sizeof(qwen_bias), 8u);
  EXPECT_EQ(sizeof(qwen_sampling), 280u);
  EXPECT_EQ(sizeof(qwen_scheduler_options), 24u);
  EXPECT_EQ(sizeof(qwen_logprob), 8u);
  EXPECT_EQ(sizeof(qwen_token_event), 40u);
  EXPECT_EQ(sizeof(qwen_draw), 24u);
  EXPECT_EQ(sizeof(qwen_progress), 32u);
  EXPECT_EQ(sizeof(qwen_ending), 48u);
  EXPECT_EQ(sizeof(qwen_beams), 48u);
  EXPECT_EQ(sizeof(qwen_beam_answer), 40u);
  EXPECT_EQ(sizeof(qwen_update), 32u);
  EXPECT_EQ(sizeof(qwen_request), 256u);
  EXPECT_EQ(sizeof(qwen_call_rules), 32u);
  EXPECT_EQ(sizeof(qwen_counts), 72u);
  EXPECT_EQ(sizeof(qwen_weight_format), 40u);
  EXPECT_EQ(sizeof(qwen_weight_parts), 72u);
  EXPECT_EQ(sizeof(qwen_parser_options), 120u);
  EXPECT_EQ(sizeof(qwen_event), 32u);
  EXPECT_EQ(sizeof(qwen_answer_state), 32u);
}

// CApiProgram.c
extern "C" int runFirstProgram(const char *path);
extern "C" int runSecondProgram(const char *path);
extern "C" int runThirdProgram(const char *path);
extern "C" int runFurtherProgram(const char *path);

TEST_F(CApiTest, RunsProgramsOfOtherVersions) {
  EXPECT_EQ(runFirstProgram(path.c_str()), 0) << qwen_last_error();
  EXPECT_EQ(runSecondProgram(path.c_str()), 0) << qwen_last_error();
  EXPECT_EQ(runThirdProgram(path.c_str()), 0) << qwen_last_error();
  EXPECT_EQ(runFurtherProgram(path.c_str()), 0) << qwen_last_error();
}

TEST(CApi, HasAVersion) { EXPECT_STREQ(qwen_version(), projectVersion()); }

namespace {
/// Prints why `model`, loaded before fork, does not run, and frees it while a
/// model that was loaded after fork runs.
[[noreturn]] void runInChild(qwen_model *model, const std::string &path) {
  alarm(60); // a child that hangs fails the test
  const qwen_token token = {1, 0, 0, 1};
  std::vector<float> logits(40);
  if (qwen_forward(model, &token, 1, logits.data()) == -1)
    std::cerr << qwen_last_error();
// ThreadSanitizer allows no new threads in a child of fork.
#if !__has_feature(thread_sanitizer)
  const qwen_options options = loadOptions({.threads = 2, .sequences = 1});
  qwen_model *own = qwen_load(path.c_str(), &options);
  qwen_free(model);
  qwen_open_sequence(own);
  if (qwen_forward(own, &token, 1, logits.data()) != 0)
    std::cerr << qwen_last_error();
  qwen_free(own);
#endif
  _exit(0);
}
} // namespace

TEST_F(CApiTest, RunsNothingInAChildOfFork) {
  const qwen_options options = loadOptions({.threads = 2, .sequences = 1});
  qwen_model *model = qwen_load(path.c_str(), &options);
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const qwen_token token = {1, qwen_open_sequence(model), 0, 1};
  EXPECT_EXIT(runInChild(model, path), testing::ExitedWithCode(0),
              "^the model was loaded before fork and its threads stayed in "
              "the parent process; load it again in this one$");
  std::vector<float> logits(40);
  EXPECT_EQ(qwen_forward(model, &token, 1, logits.data()), 0);
  qwen_free(model);
}
