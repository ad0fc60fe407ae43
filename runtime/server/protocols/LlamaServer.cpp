//===- LlamaServer.cpp - What clients of llama-server ask of a server -----===//

#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/Chat.h"
#include "server/protocols/openai/OpenAi.h"

#include "qwen/Support/Version.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

static std::string spelling(const Tokenizer &tokenizer,
                            std::optional<int32_t> id) {
  return id ? std::string(tokenizer.tokenBytes(*id)) : "";
}

static Parsed describeServer(const Service &service, const HttpRequest &) {
  const int64_t context = service.manifest.model.context;
  const Tokenizer &tokenizer = service.tokenizer;
  return Reply{
      .body = dump({{"default_generation_settings",
                     {{"n_ctx", context},
                      {"params", describeSampling(samplerOptions(
                                     service.manifest.generation))}}},
                    {"total_slots", service.sequences},
                    {"model_alias", service.model()},
                    // A file's path says nothing to a client.
                    {"model_path", service.model()},
                    {"modalities", {{"vision", false}, {"audio", false}}},
                    {"endpoint_slots", true},
                    {"endpoint_props", false},
                    {"endpoint_metrics", true},
                    {"chat_template", service.chatTemplate},
                    {"bos_token", spelling(tokenizer, tokenizer.bosToken())},
                    {"eos_token", spelling(tokenizer, tokenizer.eosToken())},
                    {"build_info", std::string("qwen-run ") + projectVersion()},
                    {"is_sleeping", false}})};
}

/// Sequences have no places of their own: as many slots are busy as sequences
/// run.
static Parsed listSlots(const Service &service, const HttpRequest &) {
  const auto running = static_cast<int64_t>(service.running());
  ordered_json slots = ordered_json::array();
  for (int64_t i = 0; i < service.sequences; ++i)
    slots.push_back({{"id", i},
                     {"n_ctx", service.manifest.model.context},
                     {"speculative", false},
                     {"is_processing", i < running}});
  return Reply{.body = dump(slots)};
}

/// The prompt of a chat.
static std::vector<int32_t> promptOf(const Service &service,
                                     const HttpRequest &request) {
  const auto chat = service.parse<ChatParameters>(request);
  return taskOf(service, chat, chat.conversation()).prompts.front();
}

static Parsed applyTemplate(const Service &service,
                            const HttpRequest &request) {
  std::string text;
  for (const int32_t id : promptOf(service, request))
    text += bytesOf(service.tokenizer, id);
  return Reply{.body = dump({{"prompt", text}})};
}

static Parsed countTokensOfChat(const Service &service,
                                const HttpRequest &request) {
  return Reply{.body =
                   dump({{"object", "response.input_tokens"},
                         {"input_tokens", promptOf(service, request).size()}})};
}

static constexpr Route kLlamaRoutes[] = {
    {"GET", "/props", "Describe the server", describeServer, "Props"},
    {"GET", "/slots", "Which sequences run", listSlots, "Slots"},
    {"POST", "/apply-template", "The text of the prompt of a chat",
     applyTemplate, "AppliedTemplate", 0, ChatParameters::List::schema,
     requireChat},
    {"POST", "/v1/chat/completions/input_tokens",
     "Count the tokens of the prompt of a chat", countTokensOfChat,
     "InputTokens", 0, ChatParameters::List::schema, requireChat},
};
const Protocol protocols::llamaServer = {kLlamaRoutes, R"json({
"Props": {
  "type": "object",
  "required": ["default_generation_settings", "total_slots", "model_alias",
               "model_path", "modalities", "chat_template"],
  "properties": {
    "default_generation_settings": {
      "type": "object", "required": ["n_ctx", "params"],
      "properties": {"n_ctx": {"type": "integer", "minimum": 1},
                     "params": {"type": "object"}}},
    "total_slots": {"type": "integer", "minimum": 1},
    "model_alias": {"type": "string"}, "model_path": {"type": "string"},
    "modalities": {
      "type": "object", "required": ["vision", "audio"],
      "additionalProperties": {"const": false}},
    "chat_template": {"type": "string"}}},
"Slots": {"type": "array", "minItems": 1, "items": {
  "type": "object", "required": ["id", "n_ctx", "is_processing"],
  "properties": {
    "id": {"type": "integer", "minimum": 0},
    "n_ctx": {"type": "integer", "minimum": 1},
    "speculative": {"const": false}, "is_processing": {"type": "boolean"}}}},
"AppliedTemplate": {
  "type": "object", "required": ["prompt"],
  "properties": {"prompt": {"type": "string"}}}
})json",
                                         &openai::kFraming};
