//===- Serve.cpp - Answers HTTP requests ----------------------------------===//

#include "Commands.h"
#include "Output.h"
#include "server/Service.h"
#include "server/http/HttpServer.h"

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

void qwen::run::serve(const ServeCommand &command) {
  const server::ServerOptions &chosen = command.server;
  const std::vector<std::string> keys = readKeys(chosen.keyFile);
  server::HttpServer http(
      chosen, keys, [](const std::string &line) { writeError(line + "\n"); });
  Model model(command.file);
  EngineOptions options = command.options(model);
  options.sequences = chosen.sequences;
  options.kvPages = chosen.pages;
  if (!chosen.noPrefixCache)
    options.snapshotBytes = command.snapshots.bytes;
  Scheduler scheduler(command.start(model, options),
                      {.queue = static_cast<size_t>(chosen.queue),
                       .batcher = {.prefixCache = !chosen.noPrefixCache,
                                   .snapshotEvery = command.snapshots.every},
                       .onStep = [&http] { http.wake(); }});
  server::Service service(model, scheduler, chosen, !keys.empty());
  writeError("qwen-run: " + service.model() + " answers on " + http.address() +
             "\n");
  http.run(service);
}
