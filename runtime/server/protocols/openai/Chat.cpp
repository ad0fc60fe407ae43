//===- Chat.cpp - /v1/chat/completions ------------------------------------===//

#include "server/protocols/openai/Chat.h"

#include "server/Routes.h"
#include "server/protocols/openai/ChatMessages.h"
#include "server/protocols/openai/OpenAi.h"
#include "server/protocols/openai/TextAnswer.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;
using Chat = ChatParameters;

constexpr OwnKind server::kMessagesKind = {
    [](J value, const std::string &name, const ParameterLimits &limits) {
      return messagesOf(value, name, limits.ignoreUnknown);
    },
    [](const ParameterLimits &limits) {
      return messagesSchema(limits.ignoreUnknown);
    }};

static constexpr const char *kThinking = "enable_thinking",
                            *kPreserve = "preserve_thinking";

void ChatParameters::setEffort(J value) {
  server::setEffort(ownVariables, value);
}

ordered_json ChatParameters::templateVariables() const {
  ordered_json variables = ownVariables;
  variables.update(otherVariables);
  return variables;
}

/// Stores the variable of a chat template.
template <const char *const &Name>
static void setVariable(void *group, J value) {
  static_cast<Chat *>(group)->ownVariables[Name] = value;
}

// clang-format off
static constexpr Parameter kChatRows[] = {
    {.name = "messages", .kind = Kind::Own, .help = "The conversation", .store = at<Chat, &Chat::messages>,
     .traits = kRequired, .own = &kMessagesKind},
    {"max_completion_tokens", Kind::Integer, "The same as max_tokens", at<Chat, &Chat::setLimit>, -1, INT32_MAX},
    {"logprobs", Kind::Boolean, "Logs of probabilities, from the raw logits, of each token", at<Chat, &Chat::logprobs>},
    {"top_logprobs", Kind::Integer, "Number of most likely tokens in logprobs", at<Chat, &Chat::topLogprobs>, 0, 20},
    {"add_generation_prompt", Kind::Boolean, "The chat template begins the answer", at<Chat, &Chat::addGenerationPrompt>},
    {"continue_final_message", Kind::Boolean, "The answer continues the last message", at<Chat, &Chat::continueFinalMessage>},
    {"chat_template_kwargs", Kind::Object, "Further variables of the chat template, such as enable_thinking",
     at<Chat, &Chat::otherVariables>},
    {"reasoning_effort", Kind::String,
     "A word for the chat template, if it reads reasoning_effort; none also sets enable_thinking to false",
     at<Chat, &Chat::setEffort>},
    // Behind reasoning_effort, which it replaces.
    {"enable_thinking", Kind::Boolean, "The same in chat_template_kwargs: whether the model thinks, if it has a choice",
     setVariable<kThinking>},
    {"preserve_thinking", Kind::Boolean,
     "The same in chat_template_kwargs: whether the reasoning of earlier turns stays, if the chat template has a choice",
     setVariable<kPreserve>},
    // What the answer may be like, only to make it faster.
    {"prediction", Kind::Ignored},
    {"modalities", Kind::Neutral, "", nullptr, 0, 0, R"([["text"]])"},
    // The models have no such setting.
    {"verbosity", Kind::Word, "Accepted without effect", nullptr, 0, 0, R"(["low", "medium", "high"])"},
    {"audio", Kind::Neutral},
    {"moderation", Kind::Neutral},
    {"web_search_options", Kind::Neutral},
};
// clang-format on

static const Chat &valuesOf(const void *group) {
  return *static_cast<const Chat *>(group);
}

static constexpr ParameterRule kChatRules[] = {
    {"top_logprobs", "needs logprobs",
     [](J, const void *group) {
       return valuesOf(group).logprobs || valuesOf(group).topLogprobs == 0;
     },
     R"({"anyOf": [
       {"properties": {"top_logprobs": {"enum": [0, null]}}},
       {"required": ["logprobs"], "properties": {"logprobs": {"const": true}}}
     ]})"},
    {"continue_final_message", "excludes add_generation_prompt",
     [](J body, const void *group) {
       return !valuesOf(group).continueFinalMessage ||
              !valuesOf(group).addGenerationPrompt ||
              !hasParameter(body, "add_generation_prompt");
     },
     R"({"anyOf": [
       {"properties": {"continue_final_message": {"enum": [false, null]}}},
       {"properties": {"add_generation_prompt": {"enum": [false, null]}}}
     ]})"},
};
const ParameterTable ChatParameters::table = {kChatRows, kChatRules};

Conversation ChatParameters::conversation() const {
  return {.names = {.messages = "messages",
                    .tools = hasFunctions ? "functions" : "tools",
                    .choice = hasFunctions ? "function_call" : "tool_choice",
                    .parallel = "parallel_tool_calls",
                    .strict = ".function.strict"},
          .messages = messages,
          .tools = shownTools(),
          .choice = choice(),
          .variables = templateVariables(),
          .addGenerationPrompt = addGenerationPrompt,
          .continueFinalMessage = continueFinalMessage};
}

namespace {
class ChatAnswer final : public TextAnswer {
public:
  /// `answerHasFunctions`: the answer has OpenAI's older form of a call.
  ChatAnswer(const Service &service, bool answerHasFunctions)
      : TextAnswer(service,
                   {"chatcmpl-", "chat.completion", "chat.completion.chunk"}),
        hasFunctions(answerHasFunctions) {}

private:
  void addCalls(ordered_json &message, const openai::Folded &part,
                bool isChunk) const;
  ordered_json finishOf(const Delta &end) const override;
  void addText(ordered_json &choice, const openai::Folded &part,
               bool isChunk) const override;
  ordered_json logprobs(const std::vector<TokenRecord> &tokens) const override;
  ordered_json firstChoice(size_t choice) const override;

  const bool hasFunctions;
};
} // namespace

/// A call in OpenAI's form, or a part of one.
static ordered_json callOf(const openai::CallPart &call, bool isChunk) {
  ordered_json object = ordered_json::object();
  ordered_json function = ordered_json::object();
  if (isChunk)
    object["index"] = call.index;
  if (!call.id.empty()) {
    object["id"] = call.id;
    object["type"] = "function";
    function["name"] = call.name;
  }
  function["arguments"] = call.arguments;
  object["function"] = std::move(function);
  return object;
}

void ChatAnswer::addText(ordered_json &choice, const openai::Folded &part,
                         bool isChunk) const {
  ordered_json message = ordered_json::object();
  if (!isChunk)
    message["role"] = "assistant";
  if (!isChunk && part.text.empty() && !part.calls.empty())
    message["content"] = nullptr;
  else if (!isChunk || !part.text.empty())
    message["content"] = part.text;
  // A member that is never left out in OpenAI's answers.
  if (!isChunk)
    message["refusal"] = nullptr;
  // The names of DeepSeek and llama.cpp, and of vLLM.
  if (!part.reasoning.empty())
    message["reasoning_content"] = message["reasoning"] = part.reasoning;
  addCalls(message, part, isChunk);
  choice[isChunk ? "delta" : "message"] = message;
}

void ChatAnswer::addCalls(ordered_json &message, const openai::Folded &part,
                          bool isChunk) const {
  for (const openai::CallPart &call : part.calls)
    if (!hasFunctions)
      message["tool_calls"].push_back(callOf(call, isChunk));
    else if (call.index == 0)
      // This form has no place for further calls.
      message["function_call"] = callOf(call, isChunk)["function"];
}

ordered_json ChatAnswer::finishOf(const Delta &end) const {
  return hasFunctions && end.finish == Finish::Calls
             ? ordered_json("function_call")
             : openai::finishReason(end);
}

ordered_json ChatAnswer::firstChoice(size_t choice) const {
  return {{"index", choice},
          {"delta", {{"role", "assistant"}, {"content", ""}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

ordered_json
ChatAnswer::logprobs(const std::vector<TokenRecord> &tokens) const {
  return {{"content", openai::tokenLogprobs(tokens, tokenizer,
                                            task().parameters.tokensAsIds)},
          {"refusal", nullptr}};
}

static Parsed parseChat(const Service &service, const HttpRequest &request) {
  requireLogits(service);
  const auto chat = service.parse<Chat>(request);
  return Exchange{taskOf(service, chat, chat.conversation()),
                  std::make_shared<ChatAnswer>(service, chat.hasFunctions)};
}

static constexpr Route kChatRoutes[] = {
    {"POST", "/v1/chat/completions", "Answer a conversation", parseChat,
     "ChatCompletion", kStreamed, Chat::List::schema, requireChat},
};
const Protocol protocols::chat = {kChatRoutes, R"json({
"ChatCompletion": {
  "allOf": [{"$ref": "#/components/schemas/Answer"}],
  "properties": {
    "object": {"const": "chat.completion"},
    "choices": {"type": "array", "minItems": 1, "items": {
      "allOf": [{"$ref": "#/components/schemas/Choice"}],
      "required": ["message"],
      "properties": {
        "message": {
          "type": "object", "required": ["role", "content", "refusal"],
          "properties": {
            "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
            "refusal": {"type": "null"}, "reasoning": {"type": "string"},
            "reasoning_content": {"type": "string"},
            "function_call": {
              "type": "object", "required": ["name", "arguments"],
              "properties": {"name": {"type": "string"},
                             "arguments": {"type": "string"}}},
            "tool_calls": {"type": "array", "minItems": 1, "items": {
              "type": "object", "required": ["id", "type", "function"],
              "properties": {
                "id": {"type": "string"}, "type": {"const": "function"},
                "function": {
                  "type": "object", "required": ["name", "arguments"],
                  "properties": {
                    "name": {"type": "string"},
                    "arguments": {"type": "string"}}}}}}}},
        "logprobs": {"anyOf": [{"type": "null"}, {
          "type": "object", "required": ["content", "refusal"],
          "properties": {
            "content": {"type": "array",
                        "items": {"$ref": "#/components/schemas/TokenLogprob"}},
            "refusal": {"type": "null"}}}]}}}}}}
})json",
                                  &openai::kFraming};
