//===- Service.h - The endpoints of the server ------------------*- C++ -*-===//
//
// From an HTTP request to an answer. Knows no sockets: HttpServer.h has these.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_SERVICE_H
#define QWEN_RUNTIME_SERVER_SERVICE_H

#include "model/Model.h"
#include "server/Generation.h"
#include "server/ServerOptions.h"

#include <atomic>

namespace qwen::server {

/// A request without what only the connection needs.
struct HttpRequest {
  std::string method;
  /// As it was sent, without the query.
  std::string path;
  std::string contentType;
  std::string contentEncoding;
  std::string body;
  /// The parameter of the path: Service::handle sets it.
  std::string parameter = {};
};

/// An answer, or a generation that gives it.
struct Reply {
  unsigned status = 200;
  std::string body;
  std::string contentType = "application/json";
  AnswerHeaders headers = {};
  std::shared_ptr<Generation> generation = nullptr;
};

Reply errorReply(const ApiError &error);

struct Route;

/// All threads may call all functions.
class Service {
public:
  /// `model` has an engine, and both references must outlive the service.
  /// `needsKey`: requests need a key. Throws Error if the model has no
  /// tokenizer, its chat template is not supported or an option is not right.
  Service(const Model &model, Scheduler &scheduler,
          const ServerOptions &options, bool needsKey);

  /// Answers a request; errors become replies. `wake` is Generation's.
  Reply handle(HttpRequest request, const WakeFn &wake);

  /// Refuses all further generations.
  void drain() { draining = true; }
  bool isDraining() const { return draining; }
  /// The name in answers.
  const std::string &model() const { return names.front(); }
  const Tokenizer &textTokenizer() const { return tokenizer; }

  // The answers of the routes (Routes.h).
  Reply chat(const HttpRequest &request, const WakeFn &wake);
  Reply complete(const HttpRequest &request, const WakeFn &wake);
  Reply embed(const HttpRequest &request, const WakeFn &wake);
  Reply rerank(const HttpRequest &request, const WakeFn &wake);
  Reply models(const HttpRequest &request, const WakeFn &wake);
  Reply oneModel(const HttpRequest &request, const WakeFn &wake);
  Reply health(const HttpRequest &request, const WakeFn &wake);
  Reply live(const HttpRequest &request, const WakeFn &wake);
  Reply version(const HttpRequest &request, const WakeFn &wake);
  Reply tokenize(const HttpRequest &request, const WakeFn &wake);
  Reply detokenize(const HttpRequest &request, const WakeFn &wake);
  Reply tokenizerInfo(const HttpRequest &request, const WakeFn &wake);
  Reply metricsText(const HttpRequest &request, const WakeFn &wake);
  Reply openApi(const HttpRequest &request, const WakeFn &wake);

private:
  /// Whether the model can answer the requests of a route.
  bool offers(const Route &route) const;
  /// Throws ApiError after drain().
  void requireRunning() const;
  Parameters parse(const HttpRequest &request, ParameterSet set) const;
  /// Refuses the text of parameter `name` if it is far longer than the context,
  /// before it is converted.
  void checkSize(const std::string &text, const std::string &name) const;
  /// Adds the parameters' prompts as ids.
  void addPrompts(GenerationTask &task) const;
  /// Gives a task its only prompt, the conversation of its parameters.
  void addChatPrompt(GenerationTask &task) const;
  /// Cuts the prompts, if the parameters say so. Refuses an empty prompt and a
  /// prompt that is too long.
  void checkPrompts(GenerationTask &task) const;
  Reply generate(GenerationTask task, const WakeFn &wake);
  nlohmann::ordered_json modelObject(const std::string &name) const;

  const Artifact &artifact;
  const Manifest &manifest;
  const Tokenizer &tokenizer;
  /// Maximum number of bytes of a text that fits into the context.
  const uint64_t mostBytes;
  /// Null if the model has none.
  const ChatFormat *const format;
  const AnswerFormat answers;
  Scheduler &scheduler;
  const int64_t pages;
  const bool hasSnapshots;
  /// Read special tokens in the text of messages.
  const bool allowSpecial;
  const bool needsKey;
  /// Variables of the chat template that a request may replace.
  const nlohmann::ordered_json templateVariables;
  const std::vector<std::string> names;
  const ParameterLimits limits;
  Metrics metrics;
  std::atomic<bool> draining = false;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_SERVICE_H
