//===- OpenApi.cpp - The description of the API ---------------------------===//

#include "server/ModelRouter.h"
#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/OpenAi.h"

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
static bool ofRouters(const Route &route) { return !route.parse.ofModel; }
static bool ofKeys(const Route &route) { return !(route.traits & kOpen); }

static constexpr std::array kErrors = std::to_array<ErrorStatus>({
    {"400", "The request is not HTTP, or a parameter is not right", ofAll},
    {"401", "An API key is needed", ofKeys},
    {"403", "The host of the request is not this machine", ofAll},
    {"404", "No such model or path", ofAll},
    {"405", "The path takes another method", ofAll},
    {"409", "Requests use the model", ofRouters},
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
static ordered_json responsesOf(const Route &route, const char *errorSchema) {
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
          {"content", contentOf("application/json", reference(errorSchema))}};
  return responses;
}

/// The parameter of a path, or null.
static ordered_json pathParameter(std::string_view path,
                                  const ParameterLimits &limits) {
  const size_t begin = path.find('{');
  if (begin == std::string_view::npos)
    return nullptr;
  const std::string_view name =
      path.substr(begin + 1, path.find('}') - begin - 1);
  ordered_json schema = {{"type", "string"}};
  if (name == "model" && !limits.models.empty())
    schema = {{"enum", limits.models}};
  return {
      {"name", name}, {"in", "path"}, {"required", true}, {"schema", schema}};
}

static ordered_json operationOf(const Route &route, const char *errorSchema,
                                const ParameterLimits &limits, bool needsKey) {
  ordered_json operation = {{"summary", route.summary},
                            {"responses", responsesOf(route, errorSchema)}};
  if (route.parameters)
    operation["requestBody"] = {
        {"required", true},
        {"content", contentOf("application/json", route.parameters(limits))}};
  if (const ordered_json parameter = pathParameter(route.path, limits);
      !parameter.is_null())
    operation["parameters"].push_back(parameter);
  if (needsKey && (route.traits & kOpen))
    operation["security"] = ordered_json::array();
  return operation;
}

ordered_json
server::describePaths(std::span<const Protocol *const> protocols,
                      const ParameterLimits &limits, bool needsKey,
                      const std::function<bool(const Route &)> &isOffered) {
  ordered_json paths = ordered_json::object();
  for (const Protocol *protocol : protocols)
    for (const Route &route : protocol->routes) {
      if (!isOffered(route))
        continue;
      std::string method = route.method;
      std::ranges::transform(method, method.begin(), [](char c) {
        return static_cast<char>(c - 'A' + 'a');
      });
      paths[route.path][method] =
          operationOf(route, protocol->framing->errorSchema, limits, needsKey);
    }
  return paths;
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

/// The description of a server with the routes of `table`.
static Parsed describe(const RouteTable &table, const ParameterLimits &limits,
                       bool needsKey,
                       const std::function<bool(const Route &)> &isOffered) {
  const std::span<const Protocol *const> protocols = table.protocols();
  ordered_json paths = describePaths(protocols, limits, needsKey, isOffered);
  ordered_json schemas = ordered_json::object();
  for (const Protocol *protocol : protocols)
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
  if (needsKey)
    object["security"] =
        ordered_json::array({{{"bearer", ordered_json::array()}},
                             {{"apiKey", ordered_json::array()}}});
  return Reply{.body = dump(object)};
}

static Parsed describeService(const Service &service, const HttpRequest &) {
  return describe(routeTable(), service.limits, service.needsKey,
                  [&](const Route &route) { return offers(service, route); });
}

static Parsed describeRouter(const ModelRouter &router, const HttpRequest &) {
  return describe(routerTable(), router.limits, router.needsKey,
                  [](const Route &route) { return !(route.traits & kPage); });
}

static constexpr Route kDescriptionRoutes[] = {
    {"GET",
     "/openapi.json",
     "This description",
     {describeService, describeRouter},
     "Description"},
};
const Protocol protocols::description = {kDescriptionRoutes, R"json({
"Description": {
  "type": "object", "required": ["openapi", "info", "paths", "components"]}
})json",
                                         &openai::kFraming};
