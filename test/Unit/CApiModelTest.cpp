//===- CApiModelTest.cpp - The C interface with a small model -------------===//

#include "qwenrt.h"

#include "grammar/Grammar.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>

using namespace qwen;

namespace {
/// Frees what a function of the C interface made.
template <auto Free> struct With {
  template <typename T> void operator()(T *object) const { Free(object); }
};
using ModelPtr = std::unique_ptr<qwen_model, With<qwen_free>>;
using SchedulerPtr = std::unique_ptr<qwen_scheduler, With<qwen_scheduler_free>>;
using GrammarPtr = std::unique_ptr<qwen_grammar, With<qwen_grammar_free>>;
using TemplatePtr = std::unique_ptr<qwen_template, With<qwen_template_free>>;
} // namespace

static const char *storiesFile() {
  const char *file = std::getenv("QWEN_STORIES");
  return file ? file : "stories.qwen";
}

static ModelPtr load(const char *chatTemplate = nullptr,
                     const char *draftModel = nullptr) {
  qwen_options options = {};
  options.size = sizeof(options);
  options.sequences = 2;
  options.threads = 2;
  options.chat_template = chatTemplate;
  options.speculate = draftModel ? QWEN_SPECULATE_AUTO : QWEN_SPECULATE_OFF;
  options.draft_model = draftModel;
  return ModelPtr(qwen_load(storiesFile(), &options));
}

static std::vector<int32_t> tokenize(const qwen_model &model,
                                     std::string_view text) {
  std::vector<int32_t> ids(200);
  ids.resize(static_cast<size_t>(qwen_tokenize(&model, text.data(), text.size(),
                                               0, ids.data(), ids.size())));
  return ids;
}

static std::string detokenize(const qwen_model &model,
                              const std::vector<int32_t> &ids) {
  std::string text(4000, 0);
  const int64_t size =
      qwen_detokenize(&model, ids.data(), ids.size(), text.data(), text.size());
  text.resize(static_cast<size_t>(std::max<int64_t>(size, 0)));
  return text;
}

static qwen_request requestOf(const std::vector<int32_t> &prompt) {
  qwen_request request = {};
  request.size = sizeof(request);
  request.prompt = prompt.data();
  request.prompt_size = prompt.size();
  request.updates = QWEN_UPDATES_ANSWER;
  return request;
}

namespace {
struct Answer {
  std::vector<int32_t> ids;
  int32_t reason = -1;
  std::string error;
};
} // namespace

/// Reads an answer up to its end.
static Answer answerOf(qwen_scheduler &scheduler) {
  Answer answer;
  while (answer.reason < 0) {
    qwen_update updates[16];
    const int64_t count = qwen_scheduler_next(&scheduler, 0, updates, 16, -1);
    for (const qwen_update &update :
         std::span(updates, static_cast<size_t>(count)))
      if (update.kind == QWEN_UPDATE_TOKEN) {
        answer.ids.push_back(
            static_cast<const qwen_token_event *>(update.data)->id);
      } else {
        const auto *ending = static_cast<const qwen_ending *>(update.data);
        answer.reason = ending->reason;
        answer.error = ending->text;
      }
  }
  return answer;
}

TEST(CApiModel, ADraftModelChangesNoAnswer) {
  EXPECT_EQ(load(nullptr, "/no/model.qwen"), nullptr);
  EXPECT_EQ(std::string(qwen_last_error()),
            "cannot read /no/model.qwen: No such file or directory");
  std::vector<int32_t> known;
  for (const char *draftModel :
       std::array<const char *, 2>{nullptr, storiesFile()}) {
    const ModelPtr model = load(nullptr, draftModel);
    ASSERT_NE(model, nullptr) << qwen_last_error();
    const SchedulerPtr scheduler(qwen_scheduler_new(model.get(), nullptr));
    const std::vector<int32_t> prompt = tokenize(*model, "Once upon a time");
    qwen_request request = requestOf(prompt);
    request.max_tokens = 100;
    ASSERT_GT(qwen_submit(scheduler.get(), &request), 0) << qwen_last_error();
    const Answer answer = answerOf(*scheduler);
    EXPECT_EQ(answer.error, "");
    EXPECT_GT(answer.ids.size(), 20U);
    if (draftModel)
      EXPECT_EQ(answer.ids, known);
    known = answer.ids;
  }
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// The rows of all tokens of a prompt by qwen_forward.
static std::vector<float> rowsOf(qwen_model &model,
                                 const std::vector<int32_t> &prompt,
                                 int32_t want, size_t width) {
  std::vector<qwen_token> tokens;
  const int32_t sequence = qwen_open_sequence(&model);
  for (size_t i = 0; i < prompt.size(); ++i)
    tokens.push_back({prompt[i], sequence, static_cast<int64_t>(i), want});
  std::vector<float> rows(prompt.size() * width);
  EXPECT_EQ(qwen_forward(&model, tokens.data(), tokens.size(), rows.data()), 0);
  qwen_close_sequence(&model, sequence);
  return rows;
}

TEST(CApiModel, GivesTheRowsOfAPrompt) {
  const ModelPtr model = load();
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const std::vector<int32_t> prompt =
      tokenize(*model, "Once upon a time, there was a king.");
  for (const int32_t want : {QWEN_WANT_LOGITS, QWEN_WANT_HIDDEN}) {
    const auto width = static_cast<size_t>(want == QWEN_WANT_LOGITS
                                               ? qwen_vocab_size(model.get())
                                               : qwen_hidden_size(model.get()));
    const std::vector<float> expected = rowsOf(*model, prompt, want, width);
    const SchedulerPtr scheduler(qwen_scheduler_new(model.get(), nullptr));
    // The second time, the prefix cache has the prompt.
    for (const int64_t count : {-1, 0, 1, 3, 1000}) {
      const size_t rows =
          count == 0 ? 1 : std::min(prompt.size(), static_cast<size_t>(count));
      std::vector<float> got(rows * width + 1, -1234);
      qwen_request request = requestOf(prompt);
      request.want_rows = want;
      request.row_count = count;
      request.rows = got.data();
      request.rows_size = rows * width;
      ASSERT_GT(qwen_submit(scheduler.get(), &request), 0) << qwen_last_error();
      const Answer answer = answerOf(*scheduler);
      EXPECT_EQ(answer.reason, QWEN_END_LENGTH) << answer.error;
      EXPECT_TRUE(answer.ids.empty());
      EXPECT_EQ(got.back(), -1234);
      got.pop_back();
      EXPECT_TRUE(
          std::ranges::equal(got, std::span(expected).last(rows * width)));
      request.rows_size -= 1;
      EXPECT_EQ(qwen_submit(scheduler.get(), &request), QWEN_ERROR_GENERAL);
      EXPECT_EQ(qwen_last_error(),
                "qwen_submit: rows has " + std::to_string(rows * width - 1) +
                    " floats when " + std::to_string(rows * width) +
                    " are needed");
    }
  }
}

TEST(CApiModel, CallsForEachRowOfAPrompt) {
  const ModelPtr model = load();
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const std::vector<int32_t> prompt = tokenize(*model, "Once upon a time");
  const auto width = static_cast<size_t>(qwen_vocab_size(model.get()));
  const std::vector<float> expected =
      rowsOf(*model, prompt, QWEN_WANT_LOGITS, width);
  const SchedulerPtr scheduler(qwen_scheduler_new(model.get(), nullptr));
  std::vector<float> got;
  qwen_request request = requestOf(prompt);
  request.user = &got;
  request.row_count = -1;
  request.on_logits = [](void *user, const float *values, size_t count) {
    auto &to = *static_cast<std::vector<float> *>(user);
    to.insert(to.end(), values, values + count);
  };
  ASSERT_GT(qwen_submit(scheduler.get(), &request), 0) << qwen_last_error();
  EXPECT_EQ(answerOf(*scheduler).reason, QWEN_END_LENGTH);
  EXPECT_EQ(got, expected);
  const auto refusal = [&] {
    EXPECT_EQ(qwen_submit(scheduler.get(), &request), QWEN_ERROR_GENERAL);
    return std::string(qwen_last_error());
  };
  request.want_rows = QWEN_WANT_HIDDEN;
  EXPECT_EQ(refusal(), "qwen_submit: on_logits and want_rows are both set");
  request.on_logits = nullptr;
  EXPECT_EQ(refusal(), "qwen_submit: rows is NULL");
  request.want_rows = 3;
  EXPECT_EQ(refusal(), "qwen_submit: want_rows is 3 when 0 to 2 is needed");
}

TEST(CApiModel, GivesLogsOfProbabilitiesAsDoubles) {
  const ModelPtr model = load();
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const auto width = static_cast<size_t>(qwen_vocab_size(model.get()));
  const std::vector<float> rows =
      rowsOf(*model, tokenize(*model, "Once upon"), QWEN_WANT_LOGITS, width);
  std::vector<int32_t> ids(width);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> floats(width);
  std::vector<double> doubles(width);
  EXPECT_EQ(
      qwen_logprobs(model.get(), rows.data(), ids.data(), width, floats.data()),
      0);
  EXPECT_EQ(qwen_double_logprobs(model.get(), rows.data(), ids.data(), width,
                                 doubles.data()),
            0);
  double sum = 0;
  for (size_t i = 0; i < width; ++i) {
    EXPECT_EQ(static_cast<float>(doubles[i]), floats[i]);
    sum += std::exp(doubles[i]);
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  ids[0] = -1;
  EXPECT_EQ(qwen_double_logprobs(model.get(), rows.data(), ids.data(), 1,
                                 doubles.data()),
            QWEN_ERROR_INVALID_TOKEN);
}

//===----------------------------------------------------------------------===//
// Tokens that may come
//===----------------------------------------------------------------------===//

TEST(CApiModel, DrawsAllowedTokensAlone) {
  const ModelPtr model = load();
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const SchedulerPtr scheduler(qwen_scheduler_new(model.get(), nullptr));
  const std::vector<int32_t> prompt = tokenize(*model, "Once upon a time"),
                             allowed = {5, 40, 4000};
  qwen_request request = requestOf(prompt);
  request.max_tokens = 20;
  request.allowed_tokens = allowed.data();
  request.allowed_count = allowed.size();
  // A program that draws sees the same.
  int draws = 0;
  request.user = &draws;
  request.on_draw = [](void *user, const qwen_draw *draw) {
    ++*static_cast<int *>(user);
    EXPECT_TRUE(std::isinf(draw->logits[6]) && std::isfinite(draw->logits[40]));
    return -1;
  };
  ASSERT_GT(qwen_submit(scheduler.get(), &request), 0) << qwen_last_error();
  const Answer answer = answerOf(*scheduler);
  EXPECT_EQ(answer.ids.size(), 20u);
  EXPECT_EQ(draws, 20);
  for (const int32_t id : answer.ids)
    EXPECT_TRUE(std::ranges::count(allowed, id)) << id;
  request.allowed_count = 0;
  EXPECT_EQ(qwen_submit(scheduler.get(), &request), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(qwen_last_error(),
               "qwen_submit: allowed_count is 0 when 1 or more is needed");
  const int32_t unknown = 4096;
  request.allowed_tokens = &unknown;
  request.allowed_count = 1;
  EXPECT_EQ(qwen_submit(scheduler.get(), &request), QWEN_ERROR_INVALID_TOKEN);
}

TEST(CApiModel, EndsReasoningAtItsBudget) {
  const ModelPtr model = load("<think>{{ messages }}</think>");
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const SchedulerPtr scheduler(qwen_scheduler_new(model.get(), nullptr));
  const std::vector<int32_t> prompt = tokenize(*model, "Once<think>\n");
  qwen_request request = requestOf(prompt);
  request.max_tokens = 40;
  const auto answer = [&] {
    EXPECT_GT(qwen_submit(scheduler.get(), &request), 0) << qwen_last_error();
    return detokenize(*model, answerOf(*scheduler).ids);
  };
  const std::string free = answer();
  EXPECT_EQ(free.find("</think>"), std::string::npos);
  request.has_budget = 1;
  EXPECT_TRUE(answer().starts_with("</think>"));
  request.reasoning_budget = 7;
  const std::string ended = answer();
  const size_t end = ended.find("</think>");
  ASSERT_NE(end, std::string::npos) << ended;
  EXPECT_GT(end, 7u);
  EXPECT_TRUE(free.starts_with(ended.substr(0, end)));
  request.reasoning_budget = -1;
  EXPECT_EQ(qwen_submit(scheduler.get(), &request), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(qwen_last_error(),
               "qwen_submit: reasoning_budget is -1 when 0 or more is needed");
  request.on_draw = [](void *, const qwen_draw *) { return -1; };
  EXPECT_EQ(qwen_submit(scheduler.get(), &request), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(qwen_last_error(),
               "qwen_submit: has_budget excludes on_draw and beams");
}

//===----------------------------------------------------------------------===//
// Grammars
//===----------------------------------------------------------------------===//

static GrammarPtr grammarOf(const qwen_model &model, int32_t kind,
                            std::string_view text) {
  return GrammarPtr(qwen_grammar_new(&model, kind, text.data(), text.size()));
}

TEST(CApiModel, KeepsToGrammars) {
  const ModelPtr model = load();
  ASSERT_NE(model, nullptr) << qwen_last_error();
  if (!hasGrammars()) {
    EXPECT_EQ(grammarOf(*model, QWEN_GRAMMAR_REGEX, "a"), nullptr);
    EXPECT_STREQ(
        qwen_last_error(),
        "this program was built without llguidance, which grammars need");
    return;
  }
  const SchedulerPtr scheduler(qwen_scheduler_new(model.get(), nullptr));
  const std::vector<int32_t> prompt = tokenize(*model, "Once upon a time");
  struct Row {
    int32_t kind;
    const char *text;
    bool (*isOf)(const std::string &answer);
  };
  constexpr Row kRows[] = {
      {QWEN_GRAMMAR_JSON_SCHEMA,
       R"({"type": "object", "properties": {"a": {"type": "boolean"}},
           "required": ["a"], "additionalProperties": false})",
       [](const std::string &answer) {
         return nlohmann::json::parse(answer).at("a").is_boolean();
       }},
      {QWEN_GRAMMAR_REGEX, "[0-9]{3}",
       [](const std::string &answer) {
         return answer.size() == 3 &&
                answer.find_first_not_of("0123456789") == std::string::npos;
       }},
      {QWEN_GRAMMAR_CHOICE, R"(["yes", "no"])",
       [](const std::string &answer) {
         return answer == "yes" || answer == "no";
       }},
      {QWEN_GRAMMAR_LARK, R"(root ::= "p" ("q" | "r"))",
       [](const std::string &answer) {
         return answer == "pq" || answer == "pr";
       }},
      {QWEN_GRAMMAR_LARK, R"(start: "x" ("y" | "w") "z")",
       [](const std::string &answer) {
         return answer == "xyz" || answer == "xwz";
       }},
  };
  for (const auto &[kind, text, isOf] : kRows) {
    SCOPED_TRACE(text);
    GrammarPtr grammar = grammarOf(*model, kind, text);
    ASSERT_NE(grammar, nullptr) << qwen_last_error();
    std::vector<int32_t> first;
    // The model does not reason, so that both begin with the grammar.
    for (const int32_t afterReasoning : {0, 1}) {
      qwen_request request = requestOf(prompt);
      request.max_tokens = 100;
      request.grammar = grammar.get();
      request.grammar_after_reasoning = afterReasoning;
      ASSERT_GT(qwen_submit(scheduler.get(), &request), 0) << qwen_last_error();
      if (afterReasoning)
        grammar.reset();
      const Answer answer = answerOf(*scheduler);
      EXPECT_EQ(answer.reason, QWEN_END_STOP) << answer.error;
      EXPECT_TRUE(isOf(detokenize(*model, answer.ids)))
          << detokenize(*model, answer.ids);
      if (afterReasoning)
        EXPECT_EQ(answer.ids, first);
      first = answer.ids;
    }
  }
}

TEST(CApiModel, SaysWhatIsNoGrammar) {
  const ModelPtr model = load(), other = load();
  ASSERT_TRUE(model && other) << qwen_last_error();
  const auto refusal = [&](int32_t kind, std::string_view text) {
    EXPECT_EQ(grammarOf(*model, kind, text), nullptr) << text;
    return std::string(qwen_last_error());
  };
  const std::string array =
      "qwen_grammar_new: text must be an array of strings, none of them empty";
  for (const char *text : {"[]", "[1]", R"([""])", "{}", R"("a")"})
    EXPECT_EQ(refusal(QWEN_GRAMMAR_CHOICE, text), array);
  EXPECT_TRUE(
      refusal(QWEN_GRAMMAR_CHOICE, "[").starts_with("qwen_grammar_new: text"));
  EXPECT_EQ(refusal(4, "a"),
            "qwen_grammar_new: kind is 4 when 0 to 3 is needed");
  EXPECT_EQ(refusal(-1, "a"),
            "qwen_grammar_new: kind is -1 when 0 to 3 is needed");
  EXPECT_EQ(refusal(QWEN_GRAMMAR_REGEX, ""), "qwen_grammar_new: text is empty");
  EXPECT_EQ(qwen_grammar_new(model.get(), 0, nullptr, 1), nullptr);
  EXPECT_STREQ(qwen_last_error(), "qwen_grammar_new: text is NULL");
  EXPECT_EQ(qwen_grammar_new(nullptr, 0, "a", 1), nullptr);
  if (!hasGrammars())
    return;
  EXPECT_NE(refusal(QWEN_GRAMMAR_REGEX, "("), "");
  EXPECT_NE(refusal(QWEN_GRAMMAR_JSON_SCHEMA, R"({"not": {}})").find("not"),
            std::string::npos);

  const SchedulerPtr scheduler(qwen_scheduler_new(model.get(), nullptr));
  const std::vector<int32_t> prompt = tokenize(*model, "Once");
  const auto submitError = [&](const qwen_request &request) {
    EXPECT_EQ(qwen_submit(scheduler.get(), &request), QWEN_ERROR_GENERAL);
    return std::string(qwen_last_error());
  };
  const GrammarPtr grammar = grammarOf(*model, QWEN_GRAMMAR_REGEX, "a+"),
                   foreign = grammarOf(*other, QWEN_GRAMMAR_REGEX, "a+");
  qwen_request request = requestOf(prompt);
  request.grammar = foreign.get();
  EXPECT_EQ(submitError(request),
            "qwen_submit: the grammar is of another model");
  request.grammar = grammar.get();
  qwen_sampling sampling = {};
  sampling.size = sizeof(sampling);
  qwen_default_sampling(model.get(), &sampling);
  sampling.no_repeat_ngram_size = 2;
  request.sampling = &sampling;
  EXPECT_EQ(submitError(request), "qwen_submit: grammar excludes bad_words and "
                                  "no_repeat_ngram_size");
  request.sampling = nullptr;
  const qwen_beams beams = {sizeof(beams), 0, 2, 0, 0, 1, 1};
  request.beams = &beams;
  EXPECT_EQ(submitError(request),
            "num-beams needs a request whose tokens are drawn by nothing else");
}

// Calls that the grammar keeps: python_calls.py, with a model that calls tools.
TEST(CApiModel, SaysWhichRulesOfCallsAreNone) {
  const ModelPtr model = load();
  ASSERT_NE(model, nullptr) << qwen_last_error();
  qwen_call_rules rules = {};
  rules.size = sizeof(rules);
  const auto refusal = [&] {
    EXPECT_EQ(qwen_grammar_new_calls(model.get(), &rules), nullptr);
    return std::string(qwen_last_error());
  };
  EXPECT_EQ(refusal(), "qwen_grammar_new_calls: tools is NULL");
  rules.tools = "[{]";
  EXPECT_TRUE(refusal().starts_with("qwen_grammar_new_calls: tools"));
  // The template has no tools.
  rules.tools = R"([{"type": "function", "function": {"name": "f"}}])";
  EXPECT_NE(refusal(), "");
  rules.tool_format = "else";
  EXPECT_TRUE(refusal().starts_with(
      "qwen_grammar_new_calls: tool_format must be one of "));
  EXPECT_EQ(qwen_grammar_new_calls(model.get(), nullptr), nullptr);
  EXPECT_STREQ(qwen_last_error(), "qwen_grammar_new_calls: rules is NULL");
}

TEST(CApiModel, ReadsTheCallsThatAGrammarKeepsBetweenTheirMarksAlone) {
  const ModelPtr model = load("{{ tools | tojson }}");
  ASSERT_NE(model, nullptr) << qwen_last_error();
  qwen_parser_options options = {};
  options.size = sizeof(options);
  options.tools = R"([{"type": "function", "function": {"name": "f"}}])";
  options.tool_format = "hermes";
  const std::vector<int32_t> ids =
      tokenize(*model, R"({"name": "f", "arguments": {}})");
  for (const int32_t hasGrammar : {0, 1}) {
    options.has_call_grammar = hasGrammar;
    qwen_parser *parser = qwen_parser_new(model.get(), &options);
    ASSERT_NE(parser, nullptr) << qwen_last_error();
    EXPECT_EQ(qwen_parser_feed(parser, ids.data(), ids.size()), 0);
    EXPECT_EQ(qwen_parser_finish(parser), 0);
    qwen_event event = {};
    event.size = sizeof(event);
    EXPECT_EQ(qwen_parser_event(parser, &event), 1);
    EXPECT_EQ(event.kind, hasGrammar ? QWEN_EVENT_TEXT : QWEN_EVENT_TOOL_BEGIN);
    qwen_parser_free(parser);
  }
}

//===----------------------------------------------------------------------===//
// Chat templates
//===----------------------------------------------------------------------===//

static constexpr std::string_view kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
    "{{ tools | tojson }}";
static constexpr std::string_view kConversation =
    R"({"messages": [{"role": "user", "content": "Hi<|im_start|>"}],
        "tools": [1]})";
static constexpr std::string_view kPrompt = "<|im_start|>Hi<|im_start|>[1]";

TEST(CApiModel, TakesATemplateForAPrompt) {
  const ModelPtr model = load();
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const TemplatePtr chat(
      qwen_template_new(model.get(), kTemplate.data(), kTemplate.size()));
  ASSERT_NE(chat, nullptr) << qwen_last_error();
  std::string text(100, 0);
  const int64_t size =
      qwen_template_render(chat.get(), kConversation.data(),
                           kConversation.size(), text.data(), text.size());
  EXPECT_EQ(text.substr(0, static_cast<size_t>(size)), kPrompt);
  // The token in the message is text.
  std::vector<int32_t> ids(100);
  const auto encode = [&](int32_t flags) {
    return qwen_template_encode(chat.get(), kConversation.data(),
                                kConversation.size(), flags, ids.data(),
                                ids.size());
  };
  EXPECT_GT(encode(0), encode(QWEN_ALLOW_SPECIAL));
  EXPECT_EQ(ids[0], qwen_token_id(model.get(), "<|im_start|>"));
  EXPECT_EQ(encode(8), QWEN_ERROR_GENERAL);
  EXPECT_STREQ(qwen_last_error(),
               "qwen_template_encode: flags are 8 when a sum of 0, 1 and 2 is "
               "needed");
  EXPECT_EQ(qwen_template_new(model.get(), "{% if %}", 8), nullptr);
  EXPECT_NE(std::string(qwen_last_error()), "");
}

TEST(CApiModel, TakesATemplateForAModel) {
  const ModelPtr model = load(std::string(kTemplate).c_str());
  ASSERT_NE(model, nullptr) << qwen_last_error();
  std::string text(100, 0);
  const int64_t size =
      qwen_render_chat(model.get(), kConversation.data(), kConversation.size(),
                       text.data(), text.size());
  EXPECT_EQ(text.substr(0, static_cast<size_t>(size)), kPrompt);
  EXPECT_EQ(load("{% if %}"), nullptr);
  EXPECT_NE(std::string(qwen_last_error()), "");
  // The checkpoint's own.
  EXPECT_NE(load(""), nullptr) << qwen_last_error();
}

TEST(CApiModel, WritesMessagesAsTheTemplateTakesThem) {
  const ModelPtr model = load(
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
      "{{ raise_exception('later') }}{% endif %}{{ m.content }}{% endfor %}");
  ASSERT_NE(model, nullptr) << qwen_last_error();
  const auto turns = [&](const nlohmann::ordered_json &given) {
    const std::string json = given.dump();
    std::string text(500, 0);
    const int64_t size = qwen_chat_turns(model.get(), json.data(), json.size(),
                                         text.data(), text.size());
    if (size < 0)
      return nlohmann::ordered_json(qwen_last_error());
    return nlohmann::ordered_json::parse(
        text.substr(0, static_cast<size_t>(size)));
  };
  const auto message = [](const char *role, const char *content) {
    return nlohmann::ordered_json{{"role", role}, {"content", content}};
  };
  const auto list = [](const auto &...each) {
    return nlohmann::ordered_json::array({each...});
  };
  EXPECT_EQ(
      turns({{"messages", list(message("system", "a"), message("system", "b"),
                               message("user", "c"), message("system", "d"))},
             {"more", 1.5}}),
      (nlohmann::ordered_json{
          {"messages", list(message("system", "a\n\nb"), message("user", "c"),
                            message("user", "<system>\nd\n</system>"))},
          {"more", 1.5}}));
  const nlohmann::ordered_json refusal =
      "qwen_chat_turns: messages must be an array of objects, each with a role "
      "and a content, which are strings";
  EXPECT_EQ(turns(nlohmann::ordered_json::object()), refusal);
  EXPECT_EQ(
      turns({{"messages", list(nlohmann::ordered_json{{"role", "user"}})}}),
      refusal);
  EXPECT_EQ(turns({{"messages", list(nlohmann::ordered_json(1))}}), refusal);
}
