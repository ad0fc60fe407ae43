//===- Models.cpp - /v1/models --------------------------------------------===//

#include "server/ModelRouter.h"
#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/messages/ModelInfo.h"
#include "server/protocols/openai/OpenAi.h"
#include "server/protocols/responses/ModelCard.h"

#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

static ordered_json modelObject(const std::string &name,
                                const std::optional<int64_t> &context) {
  ordered_json object = {{"id", name},
                         {"object", "model"},
                         {"created", 0},
                         {"owned_by", "qwen-run"}};
  if (context)
    object["max_model_len"] = *context;
  return object;
}

static ordered_json modelObject(const Service &service,
                                const std::string &name) {
  ordered_json object = modelObject(name, service.manifest.model.context);
  object["meta"] = {{"n_vocab", service.manifest.model.vocabSize},
                    {"n_ctx", service.manifest.model.context},
                    {"n_ctx_train", service.manifest.model.maxContext},
                    {"n_embd", service.manifest.model.hiddenSize}};
  return object;
}

/// What the model can do, in the words of llama-server and Ollama.
static ordered_json capabilitiesOf(const Service &service) {
  ordered_json words = ordered_json::array();
  switch (service.manifest.model.output.kind) {
  case OutputKind::Logits:
    words.push_back("completion");
    break;
  case OutputKind::None:
    words.push_back("embedding");
    break;
  case OutputKind::Scores:
    words.push_back("rerank");
    break;
  case OutputKind::Drafts:
    break;
  }
  if (service.tools.format)
    words.push_back("tools");
  if (service.limits.thinks)
    words.push_back("thinking");
  if (service.limits.fills)
    words.push_back("insert");
  return words;
}

/// A model in the list that Codex and clients of llama-server read.
static ordered_json listedModel(const Service &service,
                                const std::string &name) {
  ordered_json model = {{"name", name},
                        {"model", name},
                        {"type", "model"},
                        {"capabilities", capabilitiesOf(service)}};
  if (service.format &&
      service.manifest.model.output.kind == OutputKind::Logits)
    model.update(responses::modelCard(service, name));
  return model;
}

static Parsed listModels(const Service &service, const HttpRequest &request) {
  if (!request.anthropicVersion.empty())
    return Reply{.body = dump(messages::modelList(service))};
  ordered_json list = ordered_json::array(), models = ordered_json::array();
  for (const std::string &name : service.names) {
    list.push_back(modelObject(service, name));
    models.push_back(listedModel(service, name));
  }
  return Reply{
      .body = dump({{"object", "list"}, {"data", list}, {"models", models}})};
}

static Parsed describeModel(const Service &service,
                            const HttpRequest &request) {
  const std::vector<std::string> &models = service.limits.models;
  const std::string &asked = request.parameter;
  if (!models.empty() && !std::ranges::count(models, asked))
    throw ApiError(404, "no such model: " + quote(asked), "model",
                   ErrorCode::UnknownModel);
  return Reply{.body = dump(request.anthropicVersion.empty()
                                ? modelObject(service, asked)
                                : messages::modelInfo(
                                      asked, service.manifest.model.context))};
}

//===----------------------------------------------------------------------===//
// A server of several models
//===----------------------------------------------------------------------===//

/// What a model of a router does, in the words of llama-server's router.
static ordered_json statusObject(const ModelStatus &status) {
  ordered_json object;
  switch (status.state) {
  case ModelState::Unloaded:
    object["value"] = "unloaded";
    break;
  case ModelState::Waiting:
    object = {{"value", "loading"}, {"stage", "waits for another model"}};
    break;
  case ModelState::Loading:
    object = {{"value", "loading"}, {"stage", status.progress.stage}};
    if (const uint64_t total = status.progress.total)
      object["progress"] = static_cast<double>(status.progress.done) /
                           static_cast<double>(total);
    break;
  case ModelState::Loaded:
    object = {{"value", "loaded"},
              {"memory_bytes", status.bytes},
              {"requests", status.users}};
    break;
  }
  if (!status.failure.empty())
    object.update({{"failed", true}, {"error", printable(status.failure)}});
  return object;
}

/// A model of a router under one of its names.
static ordered_json routedObject(const ModelRouter &router, size_t model,
                                 const std::string &name, bool isAnthropic) {
  const std::shared_ptr<const Service> service = router.peek(model);
  if (isAnthropic)
    return messages::modelInfo(name, service ? service->manifest.model.context
                                             : router.at(model).context);
  ordered_json object = service ? modelObject(*service, name)
                                : modelObject(name, router.at(model).context);
  object["status"] = statusObject(router.status(model));
  return object;
}

static Parsed listRouted(const ModelRouter &router,
                         const HttpRequest &request) {
  const bool isAnthropic = !request.anthropicVersion.empty();
  ordered_json list = ordered_json::array(), models = ordered_json::array();
  for (size_t i = 0; i < router.size(); ++i) {
    const std::shared_ptr<const Service> service = router.peek(i);
    for (const std::string &name : router.at(i).names) {
      list.push_back(routedObject(router, i, name, isAnthropic));
      // A card without a member makes Codex drop all.
      if (service)
        models.push_back(listedModel(*service, name));
    }
  }
  return Reply{.body = dump(isAnthropic ? messages::modelList(list)
                                        : ordered_json{{"object", "list"},
                                                       {"data", list},
                                                       {"models", models}})};
}

static Parsed describeRouted(const ModelRouter &router,
                             const HttpRequest &request) {
  const std::string &asked = request.parameter;
  return Reply{.body = dump(routedObject(router, router.find(asked), asked,
                                         !request.anthropicVersion.empty()))};
}

static constexpr Route kModelRoutes[] = {
    {"GET",
     "/v1/models",
     "List the model, in Anthropic's form with the header Anthropic-Version",
     {listModels, listRouted},
     "Models"},
    {"GET",
     "/v1/models/{model}",
     "Describe the model, in the same forms",
     {describeModel, describeRouted},
     "Model",
     kSlashes},
};
const Protocol protocols::models = {kModelRoutes, R"json({
"Model": {"anyOf": [
  {"type": "object",
   "required": ["id", "object", "created", "owned_by"],
   "properties": {
     "id": {"type": "string"}, "object": {"const": "model"},
     "created": {"type": "integer"}, "owned_by": {"type": "string"},
     "max_model_len": {"type": "integer", "minimum": 1},
     "meta": {"type": "object",
              "additionalProperties": {"type": "integer", "minimum": 1}},
     "status": {"type": "object", "required": ["value"], "properties": {
       "value": {"enum": ["unloaded", "loading", "loaded"]},
       "stage": {"type": "string"},
       "progress": {"type": "number", "minimum": 0, "maximum": 1},
       "memory_bytes": {"type": "integer", "minimum": 0},
       "requests": {"type": "integer", "minimum": 0},
       "failed": {"const": true}, "error": {"type": "string"}}}}},
  {"type": "object",
   "required": ["type", "id", "display_name", "created_at", "lifecycle"],
   "properties": {
     "type": {"const": "model"}, "id": {"type": "string"},
     "display_name": {"type": "string"},
     "created_at": {"type": "string", "format": "date-time"},
     "lifecycle": {"const": "active"},
     "max_input_tokens": {"type": "integer", "minimum": 1},
     "max_tokens": {"type": "integer", "minimum": 1}}}]},
"Models": {
  "type": "object", "required": ["data"],
  "properties": {
    "object": {"const": "list"},
    "data": {"type": "array", "minItems": 1,
             "items": {"$ref": "#/components/schemas/Model"}},
    "models": {"type": "array", "items": {
      "type": "object",
      "required": ["name", "capabilities"],
      "properties": {
        "name": {"type": "string"}, "slug": {"type": "string"},
        "capabilities": {"type": "array", "items": {"type": "string"}},
        "context_window": {"type": "integer", "minimum": 1}}}},
    "has_more": {"const": false},
    "first_id": {"type": "string"}, "last_id": {"type": "string"}}}
})json",
                                    &openai::kFraming};
