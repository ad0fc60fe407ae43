//===- Serve.cpp - Answers HTTP requests ----------------------------------===//

#include "Commands.h"
#include "Output.h"
#include "server/HttpServer.h"

#include "qwen/Support/JsonValue.h"

#include <cstdlib>
#include <sstream>

using namespace qwen;
using namespace qwen::run;

static std::vector<std::string> readKeys(const std::string &file) {
  constexpr uint64_t kMostBytes = 65536;
  std::vector<std::string> keys;
  if (const char *key = getenv("QWEN_RUN_API_KEY"); key && *key)
    keys.emplace_back(key);
  if (file.empty())
    return keys;
  std::istringstream lines(
      readFile(file, kMostBytes, "a file of API keys is short"));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r'))
      line.pop_back();
    if (!line.empty())
      keys.push_back(line);
  }
  if (keys.empty())
    throw Error(file + " has no API key");
  return keys;
}

static std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

void qwen::run::serve(const ServeCommand &command) {
  const std::vector<std::string> keys = readKeys(command.keys);
  server::HttpServer http(
      {.listen = command.listen,
       .keys = keys,
       .origins = command.origins,
       .certificate = command.certificate,
       .privateKey = command.privateKey,
       .allowOpen = command.noAuth,
       .bodyBytes = static_cast<uint64_t>(command.bodyBytes),
       .connections = static_cast<size_t>(command.connections),
       .keepAlive = milliseconds(command.keepAlive),
       .drain = milliseconds(command.drain),
       .log = [](const std::string &line) { writeError(line + "\n"); }});
  Model model(command.file);
  EngineOptions options = command.options(model);
  options.sequences = command.sequences;
  options.kvPages = command.pages;
  if (!command.noPrefixCache)
    options.snapshotBytes = command.snapshots.bytes;
  Scheduler scheduler(command.start(model, options),
                      {.queue = static_cast<size_t>(command.queue),
                       .batcher = {.prefixCache = !command.noPrefixCache,
                                   .snapshotEvery = command.snapshots.every},
                       .onStep = [&http] { http.wake(); }});
  server::Service service(
      model, scheduler,
      {.models = command.names,
       .templateVariables = parseJsonObject<nlohmann::ordered_json>(
           command.templateVariables, "--chat-template-kwargs"),
       .ignoreUnknown = command.ignoreUnknown,
       .needsKey = !keys.empty(),
       .allowSpecial = command.allowSpecial});
  writeError("qwen-run: " + service.model() + " answers on " + http.address() +
             "\n");
  http.run(service);
}
