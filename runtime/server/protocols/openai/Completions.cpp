//===- Completions.cpp - /v1/completions ----------------------------------===//

#include "server/protocols/openai/Completions.h"

#include "server/Routes.h"
#include "server/protocols/Fill.h"
#include "server/protocols/openai/OpenAi.h"
#include "server/protocols/openai/TextAnswer.h"

#include <algorithm>
#include <functional>
#include <iterator>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;
using Completion = CompletionParameters;

void CompletionParameters::setLogprobs(const ordered_json &value) {
  logprobs = true;
  topLogprobs = value.get<int64_t>();
}

static ordered_json readSuffix(J value, const std::string &name,
                               const ParameterLimits &limits) {
  if (!value.is_string())
    throw ApiError(400, name + " must be a string", name);
  if (!limits.fills && limits.ignoreUnknown)
    return "";
  if (!limits.fills && value != "")
    refuseToFill(name);
  return value;
}

static constexpr OwnKind kSuffixKind = {
    readSuffix, [](const ParameterLimits &limits) {
      return limits.fills || limits.ignoreUnknown
                 ? ordered_json{{"type", "string"}}
                 : ordered_json{{"const", ""}};
    }};

// clang-format off
static constexpr Parameter kCompletionRows[] = {
    {"prompt", Kind::Prompts, "Texts or lists of token ids", at<Completion, &Completion::setPrompts>, 0, 0, "[]", kRequired},
    {"logprobs", Kind::Integer,
     "Logs of probabilities, from the raw logits, of each token and of this many most likely tokens",
     at<Completion, &Completion::setLogprobs>, 0, 20},
    {"best_of", Kind::Integer, "Number of choices that are drawn; the answer has the n with the highest mean logprob of a token",
     at<Completion, &Completion::bestOf>, 1, kMostChoices},
    {.name = "suffix", .kind = Kind::Own, .help = "The text behind the answer, which then stands between this and the prompt",
     .store = at<Completion, &Completion::suffix>, .own = &kSuffixKind},
};
// clang-format on

static constexpr ParameterRule kCompletionRules[] = {
    {"best_of", "excludes stream and echo",
     [](J, const void *group) {
       const auto &values = *static_cast<const Completion *>(group);
       return values.bestOf.value_or(1) == 1 ||
              (!values.stream && !values.echo);
     },
     R"({"anyOf": [
       {"properties": {"best_of": {"enum": [1, null]}}},
       {"properties": {"stream": {"enum": [false, null]},
                       "echo": {"enum": [false, null]}}}
     ]})"},
    {"suffix", "excludes echo",
     [](J, const void *group) {
       const auto &values = *static_cast<const Completion *>(group);
       return values.suffix.empty() || !values.echo;
     },
     R"({"anyOf": [
       {"properties": {"suffix": {"enum": ["", null]}}},
       {"properties": {"echo": {"enum": [false, null]}}}
     ]})"},
};
const ParameterTable CompletionParameters::table = {kCompletionRows,
                                                    kCompletionRules};

namespace {
class CompletionAnswer final : public TextAnswer {
public:
  /// The answer has the best `kept` choices of each prompt, and logprobs if it
  /// `tellsLogprobs`.
  CompletionAnswer(const Service &service, int64_t keptChoices,
                   bool answerTellsLogprobs)
      : TextAnswer(service, {"cmpl-", "text_completion", "text_completion"}),
        kept(keptChoices), tellsLogprobs(answerTellsLogprobs) {}

private:
  void select(std::vector<Delta> &all) const override;
  void addText(ordered_json &choice, const openai::Folded &part,
               bool /*isChunk*/) const override {
    choice["text"] = part.text;
  }
  ordered_json logprobs(const std::vector<TokenRecord> &tokens) const override;
  ordered_json firstChoice(size_t /*choice*/) const override { return nullptr; }

  const int64_t kept;
  const bool tellsLogprobs;
};
} // namespace

/// The mean logprob of the tokens of a choice.
static double meanLogprob(const Delta &choice) {
  double sum = 0;
  size_t count = 0;
  const auto add = [&](const std::vector<TokenRecord> &tokens) {
    for (const TokenRecord &token : tokens)
      sum += openai::finite(token.logprob.value_or(0));
    count += tokens.size();
  };
  for (const ItemDelta &item : choice.items)
    add(item.tokens);
  add(choice.tokens);
  return count ? sum / static_cast<double>(count) : 0;
}

void CompletionAnswer::select(std::vector<Delta> &all) const {
  const int64_t drawn = task().parameters.choices;
  if (drawn == kept)
    return;
  std::vector<Delta> best;
  for (auto first = all.begin(); first != all.end(); first += drawn) {
    // Of equal ones, those that were drawn first.
    std::ranges::sort(first, first + drawn, std::less(),
                      [](const Delta &choice) {
                        return std::pair(-meanLogprob(choice), choice.choice);
                      });
    std::move(first, first + kept, std::back_inserter(best));
  }
  all = std::move(best);
}

ordered_json
CompletionAnswer::logprobs(const std::vector<TokenRecord> &tokens) const {
  if (!tellsLogprobs)
    return nullptr;
  ordered_json object = {{"text_offset", ordered_json::array()},
                         {"token_logprobs", ordered_json::array()},
                         {"tokens", ordered_json::array()},
                         {"top_logprobs", ordered_json::array()}};
  for (const TokenRecord &token : tokens) {
    const std::string text = tokenText(token.id);
    object["tokens"].push_back(text);
    object["text_offset"].push_back(token.offset);
    if (!token.logprob) {
      object["token_logprobs"].push_back(nullptr);
      object["top_logprobs"].push_back(nullptr);
      continue;
    }
    ordered_json top = ordered_json::object();
    // The most likely one of tokens with the same text is first.
    for (const TokenLogprob &each : token.top)
      if (const std::string key = tokenText(each.id); !top.contains(key))
        top[key] = openai::finite(each.logprob);
    const double logprob = openai::finite(*token.logprob);
    if (!top.contains(text) || top[text] < logprob)
      top[text] = logprob;
    object["token_logprobs"].push_back(logprob);
    object["top_logprobs"].push_back(top);
  }
  return object;
}

/// Makes prompts of what stands before `suffix`.
static void addSuffix(const Service &service, const std::string &suffix,
                      GenerationTask &task) {
  const FillTokens tokens = requireFill(service, "suffix");
  service.checkSize(suffix, "suffix");
  const std::vector<int32_t> behind = service.tokenizer.encode(suffix, false);
  for (std::vector<int32_t> &prompt : task.prompts)
    prompt = fillPrompt(tokens, prompt, behind);
  task.ends.insert(task.ends.end(), tokens.ends.begin(), tokens.ends.end());
}

GenerationTask server::completionTask(const Service &service,
                                      const Completion &parameters) {
  constexpr int64_t kDefaultTokens = 16;
  GenerationTask task{.parameters = parameters,
                      .input = "prompt",
                      .isList = parameters.hasPromptList,
                      .ends = service.manifest.generation.eosTokenIds};
  task.parameters.maxTokens = parameters.maxTokens.value_or(kDefaultTokens);
  const std::string &suffix = parameters.suffix;
  service.addPrompts(parameters.prompts, task, [&](const std::string &text) {
    return service.tokenizer.encode(text, suffix.empty());
  });
  if (!suffix.empty())
    addSuffix(service, suffix, task);
  return task;
}

static Parsed parseCompletion(const Service &service,
                              const HttpRequest &request) {
  requireLogits(service);
  auto parameters = service.parse<Completion>(request);
  const int64_t kept = parameters.choices;
  const bool tellsLogprobs = parameters.logprobs;
  if (const int64_t drawn = parameters.bestOf.value_or(kept); drawn != kept) {
    if (drawn < kept)
      throw ApiError(400,
                     "best_of must not be less than n, which is " +
                         std::to_string(kept),
                     "best_of");
    parameters.choices = drawn;
    parameters.logprobs = true;
  }
  return Exchange{
      completionTask(service, parameters),
      std::make_shared<CompletionAnswer>(service, kept, tellsLogprobs)};
}

static constexpr Route kCompletionRoutes[] = {
    {"POST", "/v1/completions", "Continue texts", parseCompletion, "Completion",
     kStreamed, Completion::List::schema, requireLogits},
};
const Protocol protocols::completions = {kCompletionRoutes, R"json({
"Completion": {
  "allOf": [{"$ref": "#/components/schemas/Answer"}],
  "properties": {
    "object": {"const": "text_completion"},
    "choices": {"type": "array", "minItems": 1, "items": {
      "allOf": [{"$ref": "#/components/schemas/Choice"}],
      "required": ["text"],
      "properties": {
        "text": {"type": "string"},
        "logprobs": {"anyOf": [{"type": "null"}, {
          "type": "object",
          "required": ["text_offset", "token_logprobs", "tokens", "top_logprobs"],
          "properties": {
            "text_offset": {"type": "array", "items": {"type": "integer"}},
            "token_logprobs": {"type": "array",
                               "items": {"type": ["number", "null"]}},
            "tokens": {"type": "array", "items": {"type": "string"}},
            "top_logprobs": {"type": "array", "items": {
              "type": ["object", "null"],
              "additionalProperties": {"type": "number"}}}}}]}}}}}}
})json",
                                         &openai::kFraming};
