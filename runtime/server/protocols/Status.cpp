//===- Status.cpp - Probes and metrics ------------------------------------===//

#include "server/ModelRouter.h"
#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/OpenAi.h"

#include "qwen/Support/Version.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

// A host is a service or a router of several.

template <typename Host>
static Parsed live(const Host & /*any*/, const HttpRequest & /*any*/) {
  return Reply{.body = dump({{"status", "ok"}})};
}

template <typename Host>
static Parsed health(const Host &host, const HttpRequest &request) {
  host.requireRunning();
  return live(host, request);
}

template <typename Host>
static Parsed version(const Host & /*any*/, const HttpRequest & /*any*/) {
  return Reply{.body = dump({{"version", projectVersion()}})};
}

template <typename Host>
static Parsed metrics(const Host &host, const HttpRequest & /*any*/) {
  return Reply{
      .body = host.metricsText(),
      .contentType = "text/plain; version=0.0.4",
      .headers = {{AnswerHeader::ProcessStart, std::to_string(host.begin)}}};
}

static constexpr Route kStatusRoutes[] = {
    {"GET",
     "/health",
     "Whether the server takes requests",
     {health<Service>, health<ModelRouter>},
     "Status",
     kOpen},
    {"GET",
     "/livez",
     "Whether the server lives",
     {live<Service>, live<ModelRouter>},
     "Status",
     kOpen},
    {"GET",
     "/version",
     "The version of the server",
     {version<Service>, version<ModelRouter>},
     "Version"},
    {"GET",
     "/metrics",
     "Metrics for Prometheus",
     {metrics<Service>, metrics<ModelRouter>},
     nullptr},
};
const Protocol protocols::status = {kStatusRoutes, R"json({
"Status": {
  "type": "object", "required": ["status"],
  "properties": {"status": {"const": "ok"}}},
"Version": {
  "type": "object", "required": ["version"],
  "properties": {"version": {"type": "string"}}}
})json",
                                    &openai::kFraming};
