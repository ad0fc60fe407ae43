//===- OpenApi.cpp - The description of the API ---------------------------===//

#include "server/AnswerWriter.h"
#include "server/Routes.h"

#include "qwen/ABI/Version.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

Reply Service::openApi(const HttpRequest &, const WakeFn &) {
  ordered_json paths = ordered_json::object();
  for (const Route &route : routeTable()) {
    ordered_json operation = {
        {"summary", route.summary},
        {"responses", {{"200", {{"description", "The answer"}}}}}};
    if (route.parameters)
      operation["requestBody"] = {
          {"required", true},
          {"content",
           {{"application/json",
             {{"schema", parameterSchema(*route.parameters)}}}}}};
    if (std::string_view(route.path).ends_with("{model}"))
      operation["parameters"].push_back({{"name", "model"},
                                         {"in", "path"},
                                         {"required", true},
                                         {"schema", {{"type", "string"}}}});
    paths[route.path][route.method[0] == 'G' ? "get" : "post"] = operation;
  }
  return {.body = dump(
              {{"openapi", "3.1.0"},
               {"info",
                {{"title", "qwen-run serve"}, {"version", projectVersion()}}},
               {"paths", paths}})};
}
