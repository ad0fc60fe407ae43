//===- Models.cpp - /v1/models --------------------------------------------===//

#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/messages/ModelInfo.h"
#include "server/protocols/openai/OpenAi.h"

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
          {"max_model_len", service.manifest.model.context}};
}

static Parsed listModels(const Service &service, const HttpRequest &request) {
  if (!request.anthropicVersion.empty())
    return Reply{.body = dump(messages::modelList(service))};
  ordered_json list = ordered_json::array();
  for (const std::string &name : service.names)
    list.push_back(modelObject(service, name));
  return Reply{.body = dump({{"object", "list"}, {"data", list}})};
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
     "max_model_len": {"type": "integer", "minimum": 1}}},
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
    "has_more": {"const": false},
    "first_id": {"type": "string"}, "last_id": {"type": "string"}}}
})json",
                                    &openai::kFraming};
