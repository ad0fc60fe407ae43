//===- Models.cpp - /v1/models --------------------------------------------===//

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

static ordered_json modelObject(const Service &service,
                                const std::string &name) {
  return {{"id", name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "qwen-run"},
          {"max_model_len", service.manifest.model.context},
          {"meta",
           {{"n_vocab", service.manifest.model.vocabSize},
            {"n_ctx", service.manifest.model.context},
            {"n_ctx_train", service.manifest.model.maxContext},
            {"n_embd", service.manifest.model.hiddenSize}}}};
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
                                : messages::modelInfo(service, asked))};
}

static constexpr Route kModelRoutes[] = {
    {"GET", "/v1/models",
     "List the model, in Anthropic's form with the header Anthropic-Version",
     listModels, "Models"},
    {"GET", "/v1/models/{model}", "Describe the model, in the same forms",
     describeModel, "Model", kSlashes},
};
const Protocol protocols::models = {kModelRoutes, R"json({
"Model": {"anyOf": [
  {"type": "object",
   "required": ["id", "object", "created", "owned_by", "max_model_len"],
   "properties": {
     "id": {"type": "string"}, "object": {"const": "model"},
     "created": {"type": "integer"}, "owned_by": {"type": "string"},
     "max_model_len": {"type": "integer", "minimum": 1},
     "meta": {"type": "object",
              "additionalProperties": {"type": "integer", "minimum": 1}}}},
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
    "models": {"type": "array", "minItems": 1, "items": {
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
