//===- OpenApi.cpp - The description of the API ---------------------------===//

#include "server/Routes.h"
#include "server/Service.h"

#include "qwen/Support/Version.h"

#include <algorithm>
#include <array>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

namespace {

/// A status of an answer that is an error.
struct ErrorStatus {
  const char *status;
  const char *description;
  /// Which paths have it.
  bool (*isOf)(const Route &route);
};

} // namespace

static bool ofAll(const Route &) { return true; }
static bool ofBodies(const Route &route) { return route.parameters != nullptr; }
static bool ofKeys(const Route &route) { return !(route.traits & kOpen); }

static constexpr std::array kErrors = std::to_array<ErrorStatus>({
    {"400", "The request is not HTTP, or a parameter is not right", ofAll},
    {"401", "An API key is needed", ofKeys},
    {"403", "The host of the request is not this machine", ofAll},
    {"404", "No such model or path", ofAll},
    {"405", "The path takes another method", ofAll},
    {"413", "The body is too large", ofBodies},
    {"415", "The body has another media type or encoding", ofBodies},
    {"429", "Too many requests wait", ofBodies},
    {"431", "The header is too large", ofAll},
    {"500", "An error of the server", ofAll},
    {"503", "The server is shutting down, or lacks memory", ofAll},
});

static ordered_json reference(const std::string &schema) {
  return {{"$ref", "#/components/schemas/" + schema}};
}

static ordered_json contentOf(const char *type, const ordered_json &schema) {
  return {{type, {{"schema", schema}}}};
}

/// The answers of a path.
static ordered_json responsesOf(const Route &route) {
  ordered_json content = ordered_json::object();
  content.update(route.answer
                     ? contentOf("application/json", reference(route.answer))
                     : contentOf("text/plain", {{"type", "string"}}));
  // OpenAPI 3.1 has no schema for events.
  if (route.traits & kStreamed)
    content["text/event-stream"] = ordered_json::object();
  ordered_json responses = {
      {"200", {{"description", "The answer"}, {"content", content}}}};
  for (const ErrorStatus &error : kErrors)
    if (error.isOf(route))
      responses[error.status] = {
          {"description", error.description},
          {"content", contentOf("application/json", reference("Error"))}};
  return responses;
}

/// The values of "{model}" in a path.
static ordered_json modelParameter(const std::vector<std::string> &models) {
  ordered_json schema = {{"type", "string"}};
  if (!models.empty())
    schema = {{"enum", models}};
  return {{"name", "model"},
          {"in", "path"},
          {"required", true},
          {"schema", schema}};
}

/// Whether a route belongs to the API and the model can answer its requests.
static bool offers(const Service &service, const Route &route) {
  if (route.traits & kPage)
    return false;
  try {
    if (route.require)
      route.require(service);
  } catch (const Error &) {
    return false;
  }
  return true;
}

static ordered_json operationOf(const Service &service, const Route &route) {
  ordered_json operation = {{"summary", route.summary},
                            {"responses", responsesOf(route)}};
  if (route.parameters)
    operation["requestBody"] = {
        {"required", true},
        {"content",
         contentOf("application/json", route.parameters(service.limits))}};
  if (std::string_view(route.path).ends_with("{model}"))
    operation["parameters"].push_back(modelParameter(service.limits.models));
  if (service.needsKey && (route.traits & kOpen))
    operation["security"] = ordered_json::array();
  return operation;
}

static ordered_json describePresets() {
  ordered_json presets;
  for (const SamplerPreset &preset : samplerPresets()) {
    ordered_json settings;
    for (const SamplerSetting &setting : preset.settings())
      settings[std::string(setting.option)] = setting.value;
    presets.push_back({{"name", preset.name},
                       {"description", preset.help},
                       {"settings", settings}});
  }
  return presets;
}

static Parsed describe(const Service &service, const HttpRequest &) {
  ordered_json paths = ordered_json::object();
  for (const Route &route : routeTable())
    if (offers(service, route))
      paths[route.path][route.method[0] == 'G' ? "get" : "post"] =
          operationOf(service, route);
  ordered_json schemas = ordered_json::object();
  for (const Protocol *protocol : protocolTable())
    schemas.update(ordered_json::parse(protocol->schemas));
  ordered_json object = {
      {"openapi", "3.1.0"},
      {"info", {{"title", "qwen-run serve"}, {"version", projectVersion()}}},
      {"x-presets", describePresets()},
      {"paths", paths},
      {"components",
       {{"schemas", schemas},
        {"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
          {"apiKey",
           {{"type", "apiKey"}, {"in", "header"}, {"name", "X-Api-Key"}}}}}}}};
  if (service.needsKey)
    object["security"] =
        ordered_json::array({{{"bearer", ordered_json::array()}},
                             {{"apiKey", ordered_json::array()}}});
  return Reply{.body = dump(object)};
}

static constexpr Route kDescriptionRoutes[] = {
    {"GET", "/openapi.json", "This description", describe, "Description"},
};
/// Its schemas are also those that several protocols refer to.
const Protocol protocols::description = {kDescriptionRoutes, R"json({
"Error": {
  "type": "object", "required": ["error"],
  "properties": {"error": {
    "type": "object", "required": ["message", "type", "param", "code"],
    "properties": {
      "message": {"type": "string"}, "type": {"type": "string"},
      "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]},
      "n_prompt_tokens": {"type": "integer"}, "n_ctx": {"type": "integer"}}}}},
"Usage": {
  "type": "object", "required": ["prompt_tokens", "total_tokens"],
  "properties": {
    "prompt_tokens": {"type": "integer", "minimum": 0},
    "completion_tokens": {"type": "integer", "minimum": 0},
    "total_tokens": {"type": "integer", "minimum": 0},
    "prompt_tokens_details": {"type": "object", "properties": {
      "cached_tokens": {"type": "integer", "minimum": 0}}},
    "completion_tokens_details": {"type": "object", "properties": {
      "reasoning_tokens": {"type": "integer", "minimum": 0}}}}},
"Timings": {
  "type": "object",
  "required": ["cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms",
               "prompt_per_second", "predicted_n", "predicted_ms",
               "predicted_per_token_ms", "predicted_per_second"],
  "additionalProperties": {"type": "number"}},
"Answer": {
  "type": "object",
  "required": ["id", "object", "created", "model", "system_fingerprint",
               "x_seed", "choices", "usage", "timings"],
  "properties": {
    "id": {"type": "string"}, "created": {"type": "integer"},
    "model": {"type": "string"}, "system_fingerprint": {"type": "string"},
    "x_seed": {"type": "integer", "minimum": 0},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "timings": {"$ref": "#/components/schemas/Timings"}}},
"Choice": {
  "type": "object", "required": ["index", "logprobs", "finish_reason"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
    "stop_reason": {"type": ["string", "integer", "null"]},
    "x_score": {"type": "number"},
    "prompt_token_ids": {"$ref": "#/components/schemas/Ids"},
    "token_ids": {"$ref": "#/components/schemas/Ids"}}},
"Ids": {"type": "array", "items": {"type": "integer", "minimum": 0}},
"TokenLogprob": {
  "type": "object", "required": ["token", "logprob", "bytes"],
  "properties": {
    "token": {"type": "string"}, "logprob": {"type": "number"},
    "bytes": {"type": "array",
              "items": {"type": "integer", "minimum": 0, "maximum": 255}},
    "top_logprobs": {"type": "array",
                     "items": {"$ref": "#/components/schemas/TokenLogprob"}}}},
"Description": {
  "type": "object", "required": ["openapi", "info", "paths", "components"]}
})json"};
