//===- Messages.cpp - /v1/messages ----------------------------------------===//

#include "server/protocols/messages/Messages.h"

#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/messages/Blocks.h"
#include "server/protocols/messages/Kinds.h"
#include "server/protocols/messages/MessageAnswer.h"

using namespace qwen;
using namespace qwen::server;
using namespace qwen::server::messages;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;
using Asked = MessagesPrompt;

static constexpr OwnKind kSystemBlocks = {systemTurns, systemSchema};
static constexpr OwnKind kConversation = {conversationTurns,
                                          conversationSchema};

// clang-format off
static constexpr Parameter kPromptRows[] = {
    {.name = "messages", .kind = Kind::Own, .help = "The conversation: texts, or blocks such as tool_use and tool_result",
     .store = at<Asked, &Asked::messages>, .traits = kRequired, .own = &kConversation},
    {.name = "system", .kind = Kind::Own, .help = "Texts before the conversation", .store = at<Asked, &Asked::system>,
     .own = &kSystemBlocks},
    {.name = "tools", .kind = Kind::Own, .help = "Functions that the answer may call", .store = at<Asked, &Asked::tools>,
     .own = &kToolList},
    {.name = "tool_choice", .kind = Kind::Own,
     .help = "none: the answer calls no tool; auto: it may call some; any, or tool with a name: it is calls",
     .store = at<Asked, &Asked::toolChoice>, .own = &kToolChoice},
    {.name = "thinking", .kind = Kind::Own, .help = "Whether the model thinks, if it has a choice; by default it does not",
     .store = at<Asked, &Asked::thinking>, .own = &kThinkingConfig},
    {.name = "output_format", .kind = Kind::Own, .help = "The same as output_config.format",
     .store = at<Asked, &Asked::format>, .own = &kOutputFormat},
    {.name = "output_config", .kind = Kind::Own, .help = "How much the model thinks, and the JSON schema of its text",
     .store = at<Asked, &Asked::output>, .own = &kOutputConfig},
    {.name = "context_management", .kind = Kind::Own, .help = "Whether the reasoning of earlier turns stays (clear_thinking_20251015)",
     .store = at<Asked, &Asked::keepsThinking>, .own = &kContextManagement},
    {"chat_template_kwargs", Kind::Object, "Further variables of the chat template, such as preserve_thinking",
     at<Asked, &Asked::variables>},
    {"cache_control", Kind::Ignored},
    {"metadata", Kind::Ignored},
    {"service_tier", Kind::Ignored},
};

static constexpr Parameter kMessagesRows[] = {
    {"max_tokens", Kind::Integer, "Maximum number of tokens of the answer",
     at<MessagesParameters, &MessagesParameters::maxTokens>, 0, INT32_MAX, "[]", kRequired},
    {"stop_sequences", Kind::Strings, "Texts that end an answer; they do not count in its reasoning and its calls",
     at<MessagesParameters, &MessagesParameters::setStop>},
    {"stream", Kind::Boolean, "Send the answer while it is written", at<MessagesParameters, &MessagesParameters::stream>},
    {"cache_salt", Kind::String, "Only requests with the same text share the prefix cache",
     at<MessagesParameters, &MessagesParameters::cacheSalt>, 1, 1024},
    {"n", Kind::Neutral, "", nullptr, 0, 0, "[1]"},
    {"num_return_sequences", Kind::Neutral, "", nullptr, 0, 0, "[1]"},
};
// clang-format on

static constexpr ParameterRule kPromptRules[] = {
    {"tool_choice", "needs tools",
     [](J, const void *group) {
       const auto &prompt = *static_cast<const Asked *>(group);
       const ToolChoice::Kind kind = prompt.choice().kind;
       return kind == ToolChoice::None || kind == ToolChoice::Auto ||
              !prompt.tools.empty();
     },
     R"({"anyOf": [
       {"properties": {"tool_choice": {"anyOf": [
         {"type": "null"},
         {"type": "object",
          "properties": {"type": {"enum": ["none", "auto"]}}}]}}},
       {"required": ["tools"],
        "properties": {"tools": {"type": "array", "contains": {
          "properties": {"type": {"enum": ["custom", null]}}}}}}
     ]})"},
};
const ParameterTable MessagesPrompt::table = {kPromptRows, kPromptRules};
const ParameterTable MessagesParameters::table = {kMessagesRows};

ToolChoice MessagesPrompt::choice() const {
  if (toolChoice.is_null())
    return {};
  return {.kind = toolChoice["kind"].get<ToolChoice::Kind>(),
          .name = toolChoice["name"],
          .isParallel = toolChoice["isParallel"]};
}

/// Whether the answer continues the last message: one of the assistant with a
/// text, and without calls.
static bool isPrefilled(J messages) {
  if (messages.empty())
    return false;
  J last = messages.back();
  return last["role"] == "assistant" && !last.contains("tool_calls") &&
         last["content"].get_ref<const std::string &>().find_first_not_of(
             " \t\r\n") != std::string::npos;
}

Conversation MessagesPrompt::conversation(std::optional<bool> thinks) const {
  Conversation conversation = {
      .names = {.messages = "messages",
                .tools = "tools",
                .choice = "tool_choice",
                .parallel = "tool_choice.disable_parallel_tool_use",
                .strict = ".strict"},
      .messages = system,
      .tools = tools,
      .choice = choice(),
      .continueFinalMessage = isPrefilled(messages)};
  conversation.messages.insert(conversation.messages.end(), messages.begin(),
                               messages.end());
  ordered_json &all = conversation.variables;
  if (thinks)
    setThinking(all, *thinks);
  if (output.contains("effort"))
    setEffort(all, output["effort"]);
  if (!thinking.is_null())
    setThinking(all, thinking["thinks"]);
  if (!keepsThinking.is_null())
    all["preserve_thinking"] = keepsThinking;
  all.update(variables);
  return conversation;
}

void MessagesParameters::bindAnswer() {
  if (thinking.contains("budget"))
    thinkingBudget = thinking["budget"].get<int64_t>();
  addGrammar(format);
  if (output.contains("grammar"))
    addGrammar(output["grammar"]);
  // It has the number of cached tokens, which a stream begins with.
  returnProgress = stream;
}

/// The conversation of a request. Without a word on it, the model does not
/// think, unless whoever started the server says so.
static Conversation conversationOf(const Service &service,
                                   const MessagesPrompt &prompt) {
  return prompt.conversation(
      service.templateVariables.contains("enable_thinking")
          ? std::nullopt
          : std::optional(false));
}

static Parsed parseMessages(const Service &service,
                            const HttpRequest &request) {
  requireLogits(service);
  auto asked = service.parse<MessagesParameters>(request);
  asked.bindAnswer();
  return Exchange{taskOf(service, asked, conversationOf(service, asked)),
                  std::make_shared<MessageAnswer>(service.model())};
}

static Parsed countTokens(const Service &service, const HttpRequest &request) {
  const auto asked = service.parse<CountParameters>(request);
  const GenerationTask task =
      taskOf(service, {}, conversationOf(service, asked));
  return Reply{.body = dump({{"input_tokens", task.prompts[0].size()}})};
}

static constexpr Route kMessagesRoutes[] = {
    {"POST", "/v1/messages", "Answer a conversation of blocks", parseMessages,
     "Message", kStreamed, MessagesParameters::List::schema, requireChat},
    {"POST", "/v1/messages/count_tokens", "Count the tokens of a conversation",
     countTokens, "MessageTokens", 0, CountParameters::List::schema,
     requireChat},
};
const Protocol protocols::messages = {kMessagesRoutes, R"json({
"Message": {
  "type": "object",
  "required": ["id", "type", "role", "model", "content", "stop_reason",
               "stop_sequence", "usage"],
  "properties": {
    "id": {"type": "string"}, "type": {"const": "message"},
    "role": {"const": "assistant"}, "model": {"type": "string"},
    "content": {"type": "array", "items": {
      "type": "object", "required": ["type"],
      "properties": {
        "type": {"enum": ["text", "thinking", "tool_use"]},
        "text": {"type": "string"}, "thinking": {"type": "string"},
        "signature": {"type": "string"}, "id": {"type": "string"},
        "name": {"type": "string"}, "input": {"type": "object"}}}},
    "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence",
                             "tool_use", "model_context_window_exceeded"]},
    "stop_sequence": {"type": ["string", "null"]},
    "usage": {
      "type": "object",
      "required": ["input_tokens", "cache_creation_input_tokens",
                   "cache_read_input_tokens", "output_tokens"],
      "properties": {
        "input_tokens": {"type": "integer", "minimum": 0},
        "cache_creation_input_tokens": {"const": 0},
        "cache_read_input_tokens": {"type": "integer", "minimum": 0},
        "output_tokens": {"type": "integer", "minimum": 0},
        "output_tokens_details": {"type": "object", "properties": {
          "thinking_tokens": {"type": "integer", "minimum": 0}}}}}}},
"MessageTokens": {
  "type": "object", "required": ["input_tokens"],
  "properties": {"input_tokens": {"type": "integer", "minimum": 0}}},
"MessageError": {
  "type": "object", "required": ["type", "error"],
  "properties": {
    "type": {"const": "error"},
    "error": {
      "type": "object", "required": ["type", "message"],
      "properties": {
        "type": {"type": "string"}, "message": {"type": "string"}}}}}
})json",
                                      &kFraming};
