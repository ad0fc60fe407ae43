//===- Responses.cpp - /v1/responses --------------------------------------===//

#include "server/protocols/responses/Responses.h"

#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/OpenAi.h"
#include "server/protocols/responses/Input.h"
#include "server/protocols/responses/ResponseAnswer.h"

#include "qwen/Support/Text.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

using J = const ordered_json &;
using Kind = ParameterKind;
using Asked = responses::ResponseParameters;

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

static void requireKind(bool isRight, const std::string &name,
                        const std::string &needed) {
  if (!isRight)
    throw ApiError(400, name + " must be " + needed, name);
}

static ordered_json readReasoning(J value, const std::string &name,
                                  const ParameterLimits &limits) {
  requireKind(value.is_object(), name, "an object");
  requireMembers(value, name,
                 {"effort", "summary", "generate_summary", "context", "mode"},
                 limits);
  J effort = value.value("effort", ordered_json());
  requireKind(effort.is_null() || effort.is_string(), name + ".effort",
              "a string");
  return value;
}

/// The value, and the grammar that it asks for.
static ordered_json readText(J value, const std::string &name,
                             const ParameterLimits &limits) {
  requireKind(value.is_object(), name, "an object");
  requireMembers(value, name, {"format", "verbosity"}, limits);
  ordered_json read = {{"value", value}, {"grammar", nullptr}};
  J format = value.value("format", ordered_json());
  if (format.is_null())
    return read;
  const std::string inner = name + ".format";
  requireKind(format.is_object(), inner, "an object");
  requireMembers(format, inner,
                 {"type", "name", "description", "schema", "strict"}, limits);
  J type = format.value("type", ordered_json());
  if (type == "json_object") {
    read["grammar"] = objectGrammar(inner, limits);
  } else if (type == "json_schema") {
    requireKind(hasParameter(format, "schema"), inner + ".schema",
                "a JSON schema");
    read["grammar"] =
        schemaGrammar(format["schema"], inner + ".schema", limits);
  } else {
    requireKind(type == "text", inner + ".type",
                "one of text, json_object, json_schema");
  }
  return read;
}

static constexpr std::string_view kSealedReasoning =
    "reasoning.encrypted_content";
static constexpr std::string_view kTextLogprobs =
    "message.output_text.logprobs";

static ordered_json readInclude(J value, const std::string &name,
                                const ParameterLimits &limits) {
  requireKind(value.is_array(), name, "an array of strings");
  for (size_t i = 0; i < value.size(); ++i) {
    requireKind(value[i].is_string(), indexed(name, i), "a string");
    const auto &word = value[i].get_ref<const std::string &>();
    if (word != kSealedReasoning && word != kTextLogprobs)
      limits.note(name + " of " + quote(word) + " has no effect");
  }
  return value;
}

void Asked::setReasoning(J value) {
  repeated["reasoning"] = value;
  if (J effort = value.value("effort", ordered_json()); effort.is_string())
    setEffort(ownVariables, effort);
}

void Asked::setText(J value) {
  repeated["text"] = value["value"];
  addGrammar(value["grammar"]);
}

void Asked::setInclude(J value) {
  for (J word : value) {
    const auto &text = word.get_ref<const std::string &>();
    sealsReasoning |= text == kSealedReasoning;
    logprobs |= text == kTextLogprobs;
  }
}

/// Stores a value for the answer.
template <const char *const &Name> static void repeat(void *group, J value) {
  static_cast<Asked *>(group)->repeated[Name] = value;
}
static constexpr const char *kMetadata = "metadata",
                            *kTruncation = "truncation";

static ordered_json objectSchema(const ParameterLimits &) {
  return {{"type", "object"}};
}
static constexpr OwnKind kInput = {responses::inputMessages,
                                   responses::inputSchema};
static constexpr OwnKind kReasoning = {
    readReasoning, [](const ParameterLimits &) {
      return ordered_json::parse(R"({"type": "object", "properties": {
        "effort": {"type": ["string", "null"]}}})");
    }};
static constexpr OwnKind kText = {readText, [](const ParameterLimits &limits) {
                                    if (!limits.hasGrammars)
                                      return objectSchema(limits);
                                    return ordered_json::parse(
                                        R"({"type": "object", "properties": {
        "format": {"anyOf": [
          {"type": "null"},
          {"type": "object", "required": ["type"],
           "properties": {"type": {"enum": ["text", "json_object"]}}},
          {"type": "object", "required": ["type", "schema"],
           "properties": {"type": {"const": "json_schema"},
                          "schema": {"type": "object"}}}]}}})");
                                  }};
static constexpr OwnKind kInclude = {
    readInclude, [](const ParameterLimits &) {
      return ordered_json{{"type", "array"}, {"items", {{"type", "string"}}}};
    }};

// clang-format off
static constexpr Parameter kResponseRows[] = {
    {.name = "input", .kind = Kind::Own, .help = "The conversation: a text of the user, or items; an empty one is a probe",
     .store = at<Asked, &Asked::input>, .own = &kInput},
    {"instructions", Kind::String, "A system message before the input", at<Asked, &Asked::instructions>},
    {"max_output_tokens", Kind::Integer, "The same as max_tokens", at<Asked, &Asked::setLimit>, 1, INT32_MAX},
    {.name = "reasoning", .kind = Kind::Own,
     .help = "effort: a word for the chat template, if it reads reasoning_effort; none: the model does not think",
     .store = at<Asked, &Asked::setReasoning>, .own = &kReasoning},
    {.name = "text", .kind = Kind::Own, .help = "format: the answer is a text, a JSON object, or a document of a JSON schema",
     .store = at<Asked, &Asked::setText>, .own = &kText},
    {.name = "include", .kind = Kind::Own,
     .help = "reasoning.encrypted_content: reasoning has what the next request may send back; message.output_text.logprobs: texts have logprobs",
     .store = at<Asked, &Asked::setInclude>, .own = &kInclude},
    {"top_logprobs", Kind::Integer, "Number of most likely tokens in logprobs", at<Asked, &Asked::topLogprobs>, 0, 20},
    {"chat_template_kwargs", Kind::Object, "Further variables of the chat template, such as enable_thinking",
     at<Asked, &Asked::otherVariables>},
    {"metadata", Kind::Object, "Comes back with the answer", repeat<kMetadata>},
    {"truncation", Kind::Word, "Without effect: an input that is too long is an error", repeat<kTruncation>, 0, 0,
     R"(["auto", "disabled"])"},
    {"client_metadata", Kind::Ignored},
    {"max_tool_calls", Kind::Ignored},
    {"context_management", Kind::Ignored},
    {"moderation", Kind::Ignored},
    // A response is one answer.
    {"n", Kind::Neutral, "", nullptr, 0, 0, "[1]"},
    {"num_return_sequences", Kind::Neutral, "", nullptr, 0, 0, "[1]"},
    // The server keeps no responses and no prompts.
    {"background", Kind::Neutral, "", nullptr, 0, 0, "[false]"},
    {"conversation", Kind::Neutral},
    {"previous_response_id", Kind::Neutral},
    {"prompt", Kind::Neutral},
};
// clang-format on
const ParameterTable Asked::table = {kResponseRows};

Conversation Asked::conversation() const {
  Conversation conversation{.names = {.messages = "input",
                                      .tools = "tools",
                                      .choice = "tool_choice",
                                      .parallel = "parallel_tool_calls",
                                      .strict = ".strict",
                                      .grammar = ".format"},
                            .variables = ownVariables};
  conversation.variables.update(otherVariables);
  if (instructions)
    conversation.messages.push_back(
        {{"role", "system"}, {"content", *instructions}});
  for (J message : input)
    conversation.messages.push_back(message);
  // A probe has no input, and gets an answer.
  if (input.empty())
    conversation.messages.push_back({{"role", "user"}, {"content", ""}});
  addTo(conversation);
  return conversation;
}

//===----------------------------------------------------------------------===//
// Routes
//===----------------------------------------------------------------------===//

static GenerationTask responseTask(const Service &service, const Asked &asked) {
  return taskOf(service, asked, asked.conversation());
}

static Parsed parseResponse(const Service &service,
                            const HttpRequest &request) {
  requireLogits(service);
  auto asked = service.parse<Asked>(request);
  if (!asked.logprobs)
    asked.topLogprobs = 0;
  GenerationTask task = responseTask(service, asked);
  // The task has what the model reads.
  asked.input = asked.functions = nullptr;
  return Exchange{std::move(task), std::make_shared<responses::ResponseAnswer>(
                                       service, std::move(asked))};
}

static Parsed parseInputTokens(const Service &service,
                               const HttpRequest &request) {
  requireLogits(service);
  const auto asked = service.parse<Asked>(request);
  const GenerationTask task = responseTask(service, asked);
  return Reply{.body = dump({{"object", "response.input_tokens"},
                             {"input_tokens", task.prompts.at(0).size()}})};
}

static std::string typedEvent(std::string_view type, std::string_view data) {
  return "event: " + std::string(type) + "\ndata: " + std::string(data) +
         "\n\n";
}

static Reply responseError(const ApiError &error) {
  return openai::kFraming.error(error);
}

static std::string responseErrorEvent(const ApiError &error) {
  return typedEvent("error", dump({{"type", "error"},
                                   {"code", nullptr},
                                   {"message", error.what()},
                                   {"param", nullptr}}));
}

const Framing responses::kFraming = {.error = responseError,
                                     .errorEvent = responseErrorEvent,
                                     .event = typedEvent,
                                     .keepAlive = ": keep-alive\n\n",
                                     .errorSchema = "Error"};

static constexpr Route kResponseRoutes[] = {
    {"POST", "/v1/responses", "Answer a conversation of items", parseResponse,
     "Response", kStreamed, Asked::List::schema, requireChat},
    {"POST", "/v1/responses/input_tokens", "Count the tokens of a conversation",
     parseInputTokens, "InputTokens", 0, Asked::List::schema, requireChat},
};
const Protocol protocols::responses = {kResponseRoutes, R"json({
"InputTokens": {
  "type": "object", "required": ["object", "input_tokens"],
  "properties": {"object": {"const": "response.input_tokens"},
                 "input_tokens": {"type": "integer", "minimum": 0}}},
"Response": {
  "type": "object",
  "required": ["id", "object", "created_at", "status", "error",
               "incomplete_details", "model", "output", "parallel_tool_calls",
               "store", "tool_choice", "tools", "usage", "x_seed"],
  "properties": {
    "id": {"type": "string"}, "object": {"const": "response"},
    "created_at": {"type": "integer"},
    "status": {"enum": ["completed", "incomplete"]},
    "error": {"type": "null"},
    "incomplete_details": {"anyOf": [{"type": "null"}, {
      "type": "object", "required": ["reason"],
      "properties": {"reason": {"const": "max_output_tokens"}}}]},
    "model": {"type": "string"}, "store": {"const": false},
    "x_seed": {"type": "integer", "minimum": 0},
    "output": {"type": "array", "items": {
      "type": "object", "required": ["type", "id"],
      "properties": {
        "type": {"enum": ["message", "reasoning", "function_call",
                          "custom_tool_call"]},
        "id": {"type": "string"},
        "status": {"enum": ["completed", "incomplete"]},
        "call_id": {"type": "string"}, "name": {"type": "string"},
        "namespace": {"type": "string"}, "arguments": {"type": "string"},
        "input": {"type": "string"}, "content": {"type": "array"},
        "encrypted_content": {"type": "string"}}}},
    "usage": {
      "type": "object",
      "required": ["input_tokens", "input_tokens_details", "output_tokens",
                   "output_tokens_details", "total_tokens"],
      "properties": {
        "input_tokens": {"type": "integer", "minimum": 0},
        "output_tokens": {"type": "integer", "minimum": 0},
        "total_tokens": {"type": "integer", "minimum": 0}}}}}
})json",
                                       &responses::kFraming};
