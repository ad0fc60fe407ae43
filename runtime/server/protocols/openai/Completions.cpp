//===- Completions.cpp - /v1/completions ----------------------------------===//

#include "server/protocols/openai/Completions.h"

#include "server/Routes.h"
#include "server/protocols/Fill.h"
#include "server/protocols/openai/OpenAi.h"
#include "server/protocols/openai/TextAnswer.h"

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
    {"best_of", Kind::Neutral, "", nullptr, 0, 0, "[1]"},
    {.name = "suffix", .kind = Kind::Own, .help = "The text behind the answer, which then stands between this and the prompt",
     .store = at<Completion, &Completion::suffix>, .own = &kSuffixKind},
};
// clang-format on

static constexpr ParameterRule kCompletionRules[] = {
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
  explicit CompletionAnswer(const Service &service)
      : TextAnswer(service, {"cmpl-", "text_completion", "text_completion"}) {}

private:
  void addText(ordered_json &choice, const openai::Folded &part,
               bool /*isChunk*/) const override {
    choice["text"] = part.text;
  }
  ordered_json logprobs(const std::vector<TokenRecord> &tokens) const override;
  ordered_json firstChoice(size_t /*choice*/) const override { return nullptr; }
};
} // namespace

ordered_json
CompletionAnswer::logprobs(const std::vector<TokenRecord> &tokens) const {
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

static Parsed parseCompletion(const Service &service,
                              const HttpRequest &request) {
  constexpr int64_t kDefaultTokens = 16;
  requireLogits(service);
  auto parameters = service.parse<Completion>(request);
  parameters.maxTokens = parameters.maxTokens.value_or(kDefaultTokens);
  GenerationTask task{.parameters = parameters,
                      .input = "prompt",
                      .isList = parameters.hasPromptList,
                      .ends = service.manifest.generation.eosTokenIds};
  const std::string &suffix = parameters.suffix;
  service.addPrompts(parameters.prompts, task, [&](const std::string &text) {
    return service.tokenizer.encode(text, suffix.empty());
  });
  if (!suffix.empty())
    addSuffix(service, suffix, task);
  return Exchange{std::move(task), std::make_shared<CompletionAnswer>(service)};
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
