//===- Service.h - From requests to answers ---------------------*- C++ -*-===//
//
// What all protocols share: the model, the checks of prompts, and requests of
// the scheduler. Knows no sockets (http) and no form of requests (protocols).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_SERVICE_H
#define QWEN_RUNTIME_SERVER_SERVICE_H

#include "engine/GroupSchedulers.h"
#include "engine/RootTable.h"
#include "model/Model.h"
#include "model/Turns.h"
#include "server/GrammarThreads.h"
#include "server/Routes.h"
#include "server/ServerOptions.h"
#include "text/CallFormat.h"

#include <atomic>
#include <ctime>
#include <mutex>

namespace qwen::server {

/// How a model calls tools.
struct ToolSupport {
  /// Null if it calls none, ...
  const CallFormat *format = nullptr;
  /// ... and why.
  std::string reason = {};
};

/// All threads may call all functions. The service owns the threads that call
/// its requests, the scheduler's and the grammars': they end first, so that
/// all that a request refers to outlives its last call.
class Service final : public HttpHandler {
public:
  /// `engine` is the model's, `others` are its engines on further groups of
  /// cores, and nothing else may use them. All must outlive the service; so
  /// must what `scheduling` refers to, whose `onStep` is also called after each
  /// grammar, by its thread. `keyNames` are what roots call the API keys
  /// (findKey); if there are none, requests need no key. Throws Error if the
  /// model has no tokenizer, its chat template is not supported, an option is
  /// not right or the system gives no thread. If `kept` is not null, it has the
  /// sums of an earlier service of the model, and this one goes on with them.
  Service(const Model &model, Engine &engine,
          const SchedulerOptions &scheduling, const ServerOptions &options,
          std::vector<std::string> keyNames = {},
          std::span<const std::unique_ptr<Engine>> others = {},
          std::shared_ptr<Metrics> kept = nullptr);
  ~Service() override;
  Service(const Service &) = delete;
  Service &operator=(const Service &) = delete;

  Reply handle(HttpRequest request, const WakeFn &wake) override;
  bool isOpen(std::string_view path) const override {
    return routeTable().isOpen(path);
  }
  const Framing &framingOf(std::string_view path) const override {
    return *routeTable().protocolOf(path).framing;
  }
  std::string methods() const override { return routeTable().methodsOf("*"); }
  void drain() override { draining = true; }
  bool isDraining() const override { return draining; }

  /// The name in answers.
  const std::string &model() const { return names.front(); }
  /// All of /metrics, and what is about the model alone.
  std::string metricsText() const;
  std::string metricsOfModel() const;
  /// When it began, in seconds of the system's clock.
  const time_t begin = time(nullptr);
  /// Number of sequences that run.
  size_t running() const { return schedulers.counts().running; }
  /// Throws ApiError after drain().
  void requireRunning() const;

  /// The parameters of a request, of a struct with a ParameterList.
  template <typename Parameters>
  Parameters parse(const HttpRequest &request) const {
    Parameters parameters;
    if constexpr (requires { parameters.sampling; })
      parameters.sampling = samplerOptions(manifest.generation);
    if constexpr (requires {
                    Parameters::List::parse(request.body, limits, parameters,
                                            request.notes);
                  })
      Parameters::List::parse(request.body, limits, parameters, request.notes);
    else
      Parameters::List::parse(request.body, limits, parameters);
    return parameters;
  }
  /// Refuses the text of parameter `name` if it is far longer than the context,
  /// before it is converted.
  void checkSize(const std::string &text, const std::string &name) const;
  /// Adds prompts as ids. `encode` converts texts.
  void addPrompts(const std::vector<PromptValue> &prompts, GenerationTask &task,
                  const std::function<std::vector<int32_t>(const std::string &)>
                      &encode) const;

  /// Cuts the prompts, if the parameters say so. Refuses an empty prompt and a
  /// prompt that is too long.
  void checkPrompts(GenerationTask &task) const;

  /// Starts the requests of an exchange, which `request` asks for, of a
  /// protocol with this framing. Throws ApiError.
  Reply start(Exchange exchange, const Framing &framing,
              const HttpRequest &request, const WakeFn &wake);

  const Artifact &artifact;
  const Manifest &manifest;
  const Tokenizer &tokenizer;
  /// The chat template; empty and null if the model has none.
  const std::string_view chatTemplate;
  const ChatFormat *const format;
  const AnswerFormat &answers;
  const ToolSupport tools;
  const TurnRules turns;
  const bool hasSnapshots;
  /// Number of sequences that may run at the same time, in all engines.
  const int64_t sequences;
  /// Read special tokens in the text of messages.
  const bool allowSpecial;
  const std::vector<std::string> keyNames;
  const bool needsKey;
  /// Whether requests of different keys find each other's cached prompts.
  const bool keysShareCache;
  const bool hasPage;
  /// Variables of the chat template that a request may replace.
  const nlohmann::ordered_json templateVariables;
  const std::vector<std::string> names;
  /// Names the model file in answers: the
  /// checksum of its header, which has the checksums of all parts.
  const std::string fingerprint;
  /// Root::artifact of all requests.
  const std::string identity;
  const ParameterLimits limits;

private:
  /// `handle` of a request with notes. Throws Error.
  Reply replyTo(HttpRequest request, const Framing &framing,
                const WakeFn &wake);
  /// The ids of a prompt of the parameter `name`, to whose texts nothing is
  /// added.
  std::vector<int32_t> idsOf(const MixedPrompt &mixed,
                             const std::string &name) const;
  /// Makes the grammar of a request and starts or refuses it.
  void startWithGrammar(Generation &generation);
  /// The grammar of a request that has one. Throws ApiError, which names its
  /// parameter.
  std::shared_ptr<const Grammar> grammarOf(const Generation &generation);
  /// For answers of this format, whose reasoning must have marks that are
  /// tokens. Throws Error.
  const GrammarCompiler &compilerFor(const AnswerFormat *of);
  /// What prompts of a request must share.
  RootRef rootOf(const HttpRequest &request, const std::string &salt);

  /// Maximum number of bytes of a text that fits into the context.
  const uint64_t mostBytes;
  /// The scheduler's, or null.
  const PageStore *const store;
  const std::shared_ptr<Metrics> keptMetrics;
  Metrics &metrics;
  RootTable roots;
  /// Made for the first request with a grammar.
  std::once_flag grammarsMade;
  std::unique_ptr<GrammarCompiler> grammars;
  std::atomic<bool> draining = false;
  /// Ends before all others but the last.
  GroupSchedulers schedulers;
  /// Uses all others, and ends first.
  GrammarThreads grammarThreads;
};

/// Throws Error if the model draws no tokens.
void requireLogits(const Service &service);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_SERVICE_H
