//===- ModelRouter.h - From requests to one of several models ---*- C++ -*-===//
//
// Stands before the services of a pool's models. It finds the model of a
// request, loads it where necessary, and answers what is about no single model
// (docs/decisions/0041-several-models.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_MODELROUTER_H
#define QWEN_RUNTIME_SERVER_MODELROUTER_H

#include "model/ModelPool.h"
#include "server/PendingReply.h"
#include "server/Routes.h"
#include "server/Service.h"

#include <atomic>
#include <ctime>
#include <map>
#include <span>

namespace qwen::server {

/// A loaded model that answers requests.
class ServedModel : public LoadedModel {
public:
  virtual Service &service() = 0;
};

/// What is known of a model that may not be loaded.
struct RoutedModel {
  /// The name in answers, and others that requests may give.
  std::vector<std::string> names;
  /// Tokens of its context, if known.
  std::optional<int64_t> context = {};
};

/// Some of the names of models, for errors.
std::string someNames(std::span<const RoutedModel> models);

/// All threads may call all functions.
class ModelRouter final : public HttpHandler {
public:
  /// `pool` has a ServedModel for each of `models` and must outlive the router.
  /// `onReady` is called, by any thread, after a request that waited for a
  /// model got its reply. All services use `store`, if it is not null. Throws
  /// Error if two models have one name.
  ModelRouter(std::vector<RoutedModel> models, ModelPool &pool,
              const ServerOptions &options, bool needsKey,
              std::function<void()> onReady, const PageStore *store = nullptr);

  Reply handle(HttpRequest request, const WakeFn &wake) override;
  bool isOpen(std::string_view path) const override {
    return routerTable().isOpen(path);
  }
  const Framing &framingOf(std::string_view path) const override {
    return *routerTable().protocolOf(path).framing;
  }
  std::string methods() const override { return routerTable().methodsOf("*"); }
  void drain() override { draining = true; }
  bool isDraining() const override { return draining; }

  /// Throws ApiError after drain().
  void requireRunning() const;
  std::string metricsText() const;

  /// What /v1/models tells of its models, which are meant by their places.
  size_t size() const { return known.size(); }
  const RoutedModel &at(size_t model) const { return known[model]; }
  ModelStatus status(size_t model) const { return models.status(model); }
  /// Null unless the model is loaded. A look, and no use.
  std::shared_ptr<Service> peek(size_t model) const;
  /// The place of the model with a name. Throws ApiError (404).
  size_t find(const std::string &name) const;

  /// Begin to load a model, and unload it. `unload` throws ApiError (409) if
  /// requests use it.
  void load(size_t model) const { models.load(model); }
  void unload(size_t model) const;

  const bool needsKey, hasPage;
  /// When it began, in seconds of the system's clock.
  const time_t begin = time(nullptr);
  /// Bounds of requests to any of the models, for /openapi.json.
  const ParameterLimits limits;

private:
  Reply route(HttpRequest request, const Framing &framing, const WakeFn &wake);
  /// The model that a request names, or the only one. Throws ApiError.
  size_t modelOf(const HttpRequest &request, const Route &route) const;
  /// Gives a request that waited its reply.
  void finish(PendingReply &pending, size_t model,
              const ModelPool::Lease &lease, const LoadFailure &failure) const;
  /// What a client gets for a load that failed.
  ApiError errorOf(size_t model, const LoadFailure &failure) const;

  const std::vector<RoutedModel> known;
  ModelPool &models;
  /// Places of models by their names.
  const std::map<std::string, size_t> places;
  const std::function<void()> onReady;
  const PageStore *const store;
  std::atomic<bool> draining = false;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_MODELROUTER_H
