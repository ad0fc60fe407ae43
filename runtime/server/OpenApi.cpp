//===- OpenApi.cpp - The description of the API ---------------------------===//

#include "server/AnswerSchemas.h"
#include "server/AnswerWriter.h"
#include "server/Routes.h"

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
static bool ofBodies(const Route &route) {
  return route.parameters.has_value();
}
static bool ofKeys(const Route &route) { return !route.isOpen; }

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
  const AnswerSchema &answer = answerSchemaOf(route.path);
  content.update(contentOf(answer.mediaType,
                           answer.name ? reference(answer.name)
                                       : ordered_json{{"type", "string"}}));
  // OpenAPI 3.1 has no schema for events.
  if (answer.isStreamed)
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

bool Service::offers(const Route &route) const {
  const ModelOutput &output = manifest.model.output;
  try {
    if (route.parameters == kChatParameters ||
        route.parameters == kCompletionParameters)
      output.requireLogits(model());
    else if (route.parameters == kEmbeddingParameters)
      output.requireEmbedding(model());
    else if (route.parameters == kRerankParameters)
      const Reranker reranker(tokenizer, output, model());
  } catch (const Error &) {
    return false;
  }
  return route.parameters != kChatParameters || format != nullptr;
}

Reply Service::openApi(const HttpRequest &, const WakeFn &) {
  ordered_json paths = ordered_json::object();
  for (const Route &route : routeTable()) {
    if (!offers(route))
      continue;
    ordered_json operation = {{"summary", route.summary},
                              {"responses", responsesOf(route)}};
    if (route.parameters)
      operation["requestBody"] = {
          {"required", true},
          {"content", contentOf("application/json",
                                parameterSchema(*route.parameters, limits))}};
    if (std::string_view(route.path).ends_with("{model}"))
      operation["parameters"].push_back(modelParameter(limits.models));
    if (needsKey && route.isOpen)
      operation["security"] = ordered_json::array();
    paths[route.path][route.method[0] == 'G' ? "get" : "post"] = operation;
  }
  ordered_json object = {
      {"openapi", "3.1.0"},
      {"info", {{"title", "qwen-run serve"}, {"version", projectVersion()}}},
      {"paths", paths},
      {"components",
       {{"schemas", answerSchemas()},
        {"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
          {"apiKey",
           {{"type", "apiKey"}, {"in", "header"}, {"name", "X-Api-Key"}}}}}}}};
  if (needsKey)
    object["security"] =
        ordered_json::array({{{"bearer", ordered_json::array()}},
                             {{"apiKey", ordered_json::array()}}});
  return {.body = dump(object)};
}
