//===- Status.cpp - Probes and metrics ------------------------------------===//

#include "server/Routes.h"
#include "server/Service.h"
#include "server/protocols/openai/OpenAi.h"

#include "qwen/Support/Version.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

static Parsed live(const Service &, const HttpRequest &) {
  return Reply{.body = dump({{"status", "ok"}})};
}

static Parsed health(const Service &service, const HttpRequest &request) {
  service.requireRunning();
  return live(service, request);
}

static Parsed version(const Service &, const HttpRequest &) {
  return Reply{.body = dump({{"version", projectVersion()}})};
}

static Parsed metrics(const Service &service, const HttpRequest &) {
  return Reply{
      .body = service.metricsText(),
      .contentType = "text/plain; version=0.0.4",
      .headers = {{AnswerHeader::ProcessStart, std::to_string(service.begin)}}};
}

static constexpr Route kStatusRoutes[] = {
    {"GET", "/health", "Whether the server takes requests", health, "Status",
     kOpen},
    {"GET", "/livez", "Whether the server lives", live, "Status", kOpen},
    {"GET", "/version", "The version of the server", version, "Version"},
    {"GET", "/metrics", "Metrics for Prometheus", metrics, nullptr},
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
