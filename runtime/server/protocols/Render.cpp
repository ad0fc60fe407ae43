//===- Render.cpp - The prompts of requests, without answers --------------===//
//
// What vLLM's servers tell routers, which choose a server by the ids of a
// prompt.
//
//===----------------------------------------------------------------------===//

#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/Chat.h"
#include "server/protocols/openai/Completions.h"
#include "server/protocols/openai/OpenAi.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

/// A list with an object for each prompt of a request.
static ordered_json rendered(const Service &service, GenerationTask &task,
                             const std::string &prefix) {
  service.checkPrompts(task);
  ordered_json sampling = describeSampling(task.parameters.sampling);
  sampling["n"] = task.parameters.choices;
  if (const auto &most = task.parameters.maxTokens)
    sampling["max_tokens"] = *most;
  if (const auto &seed = task.parameters.seed)
    sampling["seed"] = *seed;
  ordered_json all = ordered_json::array();
  for (const std::vector<int32_t> &prompt : task.prompts)
    all.push_back({{"request_id", randomId(prefix)},
                   {"token_ids", prompt},
                   {"sampling_params", sampling},
                   {"model", service.model()}});
  return all;
}

static Parsed renderChat(const Service &service, const HttpRequest &request) {
  requireLogits(service);
  const auto chat = service.parse<ChatParameters>(request);
  GenerationTask task = taskOf(service, chat, chat.conversation());
  return Reply{.body = dump(rendered(service, task, "chatcmpl-").front())};
}

static Parsed renderCompletion(const Service &service,
                               const HttpRequest &request) {
  requireLogits(service);
  const auto parameters = service.parse<CompletionParameters>(request);
  GenerationTask task = completionTask(service, parameters);
  return Reply{.body = dump(rendered(service, task, "cmpl-"))};
}

static constexpr Route kRenderRoutes[] = {
    {"POST", "/v1/chat/completions/render", "The ids of the prompt of a chat",
     renderChat, "Rendered", 0, ChatParameters::List::schema, requireChat},
    {"POST", "/v1/completions/render", "The ids of the prompts of a completion",
     renderCompletion, "RenderedList", 0, CompletionParameters::List::schema,
     requireLogits},
};
const Protocol protocols::render = {kRenderRoutes, R"json({
"Rendered": {
  "type": "object",
  "required": ["request_id", "token_ids", "sampling_params", "model"],
  "properties": {
    "request_id": {"type": "string"},
    "token_ids": {"$ref": "#/components/schemas/Ids"},
    "sampling_params": {"type": "object"}, "model": {"type": "string"}}},
"RenderedList": {"type": "array", "minItems": 1,
                 "items": {"$ref": "#/components/schemas/Rendered"}}
})json",
                                    &openai::kFraming};
