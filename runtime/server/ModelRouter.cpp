//===- ModelRouter.cpp - From requests to one of several models -----------===//

#include "server/ModelRouter.h"

#include "server/ModelName.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::server;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Throws Error if two models have one name.
static std::map<std::string, size_t>
placesOf(const std::vector<RoutedModel> &models) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < models.size(); ++i)
    for (const std::string &name : models[i].names)
      if (!places.emplace(name, i).second)
        throw Error("two models have the name " + quote(name) +
                    "; rename a file, or give another alias with --name");
  return places;
}

std::string qwen::server::someNames(std::span<const RoutedModel> models) {
  constexpr size_t kMostNames = 8;
  std::string list;
  for (size_t i = 0; i < std::min(models.size(), kMostNames); ++i)
    list += (i ? ", " : "") + quote(models[i].names.front());
  return models.size() > kMostNames
             ? list + " and " + std::to_string(models.size() - kMostNames) +
                   " more"
             : list;
}

/// Bounds that the requests to all models keep.
static ParameterLimits limitsOf(const std::vector<RoutedModel> &models,
                                const ServerOptions &options) {
  ParameterLimits limits = {.vocabSize = INT32_MAX,
                            .hasGrammars = hasGrammars(),
                            .ignoreUnknown = options.ignoreUnknown};
  for (const RoutedModel &model : models)
    std::ranges::copy(model.names, std::back_inserter(limits.models));
  return limits;
}

ModelRouter::ModelRouter(std::vector<RoutedModel> routed, ModelPool &pool,
                         const ServerOptions &options, bool keyIsNeeded,
                         std::function<void()> readyFn,
                         const PageStore *ofServices)
    : needsKey(keyIsNeeded), hasPage(!options.noPage),
      limits(limitsOf(routed, options)), known(std::move(routed)), models(pool),
      places(placesOf(known)), onReady(std::move(readyFn)), store(ofServices) {}

size_t ModelRouter::find(const std::string &name) const {
  const auto place = places.find(name);
  if (place == places.end())
    throw ApiError(404,
                   "no such model: " + quote(name) + "; this server has " +
                       someNames(known),
                   "model", ErrorCode::UnknownModel);
  return place->second;
}

size_t ModelRouter::modelOf(const HttpRequest &request,
                            const Route &route) const {
  if (route.parameters)
    checkBody(request);
  const std::string name = route.parameters ? modelInBody(request.body)
                                            : modelInQuery(request.query);
  if (!name.empty())
    return find(name);
  if (known.size() == 1)
    return 0;
  throw ApiError(400,
                 "model is needed" +
                     std::string(route.parameters ? "" : " (?model=NAME)") +
                     ": this server has " + someNames(known),
                 "model");
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

void ModelRouter::requireRunning() const {
  if (draining)
    throw ApiError(503, "the server is shutting down");
}

namespace {
/// A stream, and the lease of its model, which ends behind it.
struct LeasedStream {
  ModelPool::Lease lease;
  std::shared_ptr<ReplyStream> stream;
};
} // namespace

/// The reply of a loaded model, which stays loaded until its stream ends.
static Reply answer(const ModelPool::Lease &lease, HttpRequest request,
                    const WakeFn &wake) {
  Service &service = static_cast<ServedModel &>(*lease).service();
  Reply reply = service.handle(std::move(request), wake);
  if (reply.stream) {
    ReplyStream *const stream = reply.stream.get();
    reply.stream = {std::make_shared<LeasedStream>(
                        LeasedStream{lease, std::move(reply.stream)}),
                    stream};
  }
  return reply;
}

ApiError ModelRouter::errorOf(size_t model, const LoadFailure &failure) const {
  if (failure.kind == ErrorKind::QueueFull)
    return asApiError(Error(failure.text, failure.kind));
  return {503,
          "cannot load " + quote(at(model).names.front()) + ": " +
              printable(failure.text),
          "model"};
}

void ModelRouter::finish(PendingReply &pending, size_t model,
                         const ModelPool::Lease &lease,
                         const LoadFailure &failure) const {
  std::optional<HttpRequest> request = pending.takeRequest();
  if (!request)
    return;
  try {
    if (!lease)
      throw ApiError(errorOf(model, failure));
    requireRunning();
    pending.give(answer(lease, *std::move(request), pending.wake));
  } catch (const Error &error) {
    pending.give(pending.framing.error(asApiError(error)));
  } catch (const std::bad_alloc &) {
    pending.cancel();
  }
  onReady();
}

Reply ModelRouter::route(HttpRequest request, const Framing &framing,
                         const WakeFn &wake) {
  if (request.method == "OPTIONS")
    return optionsReply(routerTable(), request.path);
  RouteMatch match = routerTable().find(request.method, request.path);
  const Route &route = match.route;
  // Paths that are open to all load no model.
  if (route.parse.ofRouter && (route.parameters || (route.traits & kOpen) ||
                               modelInQuery(request.query).empty())) {
    if (route.parameters)
      checkBody(request);
    request.parameter = std::move(match.parameter);
    return std::get<Reply>(route.parse(*this, request));
  }
  requireRunning();
  const size_t model = modelOf(request, route);
  if (const ModelPool::Lease lease = models.find(model))
    return answer(lease, std::move(request), wake);
  const auto pending =
      std::make_shared<PendingReply>(std::move(request), framing, wake);
  try {
    models.acquire(model, [this, pending, model](const ModelPool::Lease &lease,
                                                 const LoadFailure &failure) {
      finish(*pending, model, lease, failure);
    });
  } catch (const Error &error) {
    throw ApiError(errorOf(model, {error.what(), error.kind()}));
  }
  return {.body = "", .stream = pending};
}

Reply ModelRouter::handle(HttpRequest request, const WakeFn &wake) {
  const Framing &framing = framingOf(request.path);
  try {
    return route(std::move(request), framing, wake);
  } catch (const Error &error) {
    return framing.error(asApiError(error));
  } catch (const std::bad_alloc &) {
    return framing.error({503, "out of memory"});
  }
}

//===----------------------------------------------------------------------===//
// The server as a whole
//===----------------------------------------------------------------------===//

std::shared_ptr<Service> ModelRouter::peek(size_t model) const {
  const ModelPool::Lease lease = models.peek(model);
  if (!lease)
    return nullptr;
  return {lease, &static_cast<ServedModel &>(*lease).service()};
}

void ModelRouter::unload(size_t model) const {
  try {
    models.unload(model);
  } catch (const Error &error) {
    throw ApiError(409, error.what(), "model");
  }
}

std::string ModelRouter::metricsText() const {
  std::vector<std::string> texts;
  std::vector<std::pair<std::string, ModelStatus>> states;
  for (size_t i = 0; i < size(); ++i) {
    if (const std::shared_ptr<Service> service = peek(i))
      texts.push_back(service->metricsOfModel());
    states.emplace_back(known[i].names.front(), status(i));
  }
  texts.push_back(modelMetrics(states));
  if (store)
    texts.push_back(storeMetrics(store->size()));
  return joinMetrics(texts);
}
