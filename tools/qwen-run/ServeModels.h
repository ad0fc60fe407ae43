//===- ServeModels.h - Answers requests to several models -------*- C++ -*-===//

#ifndef QWEN_RUN_SERVEMODELS_H
#define QWEN_RUN_SERVEMODELS_H

#include "ModelList.h"
#include "Output.h"
#include "ServiceFlags.h"
#include "server/http/HttpServer.h"

namespace qwen::run {

/// Receives lines of the log, from any thread.
using LogLineFn = std::function<void(const std::string &line)>;

/// What the services of a server share.
struct ServerParts {
  server::HttpServer &http;
  /// What roots call the API keys; none: requests need no key.
  std::vector<std::string> keyNames;
  /// The memory of all.
  std::shared_ptr<MemoryBudget> budget;
  /// The prompt cache on disk, or null.
  PageStore *store = nullptr;
  /// Hears which pages are kept, or is null.
  PageEvents *events = nullptr;
  LogLineFn log;
};

/// The models of a command line and of its --models-dir. Throws Error if a
/// MODEL is none, or if there is none at all.
std::vector<ListedModel> modelsOf(const ServiceFlags &command,
                                  const std::vector<std::string> &more,
                                  const LogLineFn &log);

/// Serves `models` until a signal ends the server. `onReady` is called when
/// requests are taken.
void serveModels(const ServiceFlags &command,
                 const std::vector<ListedModel> &models,
                 const ServerParts &parts,
                 const std::function<void()> &onReady);

} // namespace qwen::run

#endif // QWEN_RUN_SERVEMODELS_H
