//===- Routes.h - Paths, and what answers them ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_ROUTES_H
#define QWEN_RUNTIME_SERVER_ROUTES_H

#include "server/Answer.h"
#include "server/Parameters.h"

namespace qwen::server {

class Service;
class ModelRouter;

/// Requests of the scheduler, and what writes their answer.
struct Exchange {
  GenerationTask task;
  std::shared_ptr<Answer> answer;
};

/// What a protocol makes of a request: an answer at once, or an exchange.
using Parsed = std::variant<Reply, Exchange>;

/// What answers the requests of a route. Both functions throw ApiError.
struct RouteFn {
  using ModelFn = Parsed (*)(const Service &service,
                             const HttpRequest &request);
  using RouterFn = Parsed (*)(const ModelRouter &router,
                              const HttpRequest &request);

  constexpr RouteFn(ModelFn model, RouterFn router = nullptr)
      : ofModel(model), ofRouter(router) {}
  Parsed operator()(const Service &service, const HttpRequest &request) const {
    return ofModel(service, request);
  }
  Parsed operator()(const ModelRouter &router,
                    const HttpRequest &request) const {
    return ofRouter(router, request);
  }

  /// Null if only a router has the route.
  ModelFn ofModel;
  /// Answers at once in a server of several models, unless the query of a path
  /// that needs a key names one; null: one of the models answers.
  RouterFn ofRouter;
};

enum RouteTrait : uint8_t {
  /// The answer may be a stream of events.
  kStreamed = 1,
  /// Answers without a key.
  kOpen = 2,
  /// Part of the page, which /openapi.json does not describe.
  kPage = 4,
  /// The parameter at the end of the path may have slashes.
  kSlashes = 8,
};

/// A path, what answers it, and what /openapi.json says of it.
struct Route {
  /// "GET" stands for HEAD, too.
  const char *method;
  /// The path in /openapi.json. Requests may leave out its "/v1", or put it
  /// before a path without. A part in braces is the parameter.
  const char *path;
  const char *summary;
  RouteFn parse;
  /// The schema of the answer, one of Protocol::schemas; null for a text.
  const char *answer;
  /// RouteTrait.
  uint8_t traits = 0;
  /// The schema of the body of a POST.
  nlohmann::ordered_json (*parameters)(const ParameterLimits &limits) = nullptr;
  /// Throws Error if the model cannot answer; null if any can.
  void (*require)(const Service &service) = nullptr;
  /// What requests may have in place of "v1".
  const char *otherVersion = "";
};

/// A protocol: its paths, the JSON schemas of its answers by name, and what it
/// writes besides answers. Schemas may refer to schemas of other
/// protocols. Objects may have more members.
struct Protocol {
  std::span<const Route> routes;
  std::string_view schemas;
  const Framing *framing;
};

namespace protocols {
#define QWEN_PROTOCOL(Name) extern const Protocol Name;
#define QWEN_ROUTER_PROTOCOL QWEN_PROTOCOL
#include "server/protocols/Protocols.def"
} // namespace protocols

struct RouteMatch {
  const Protocol &protocol;
  const Route &route;
  /// The decoded parameter of the path; may have slashes.
  std::string parameter;
};

/// The routes of protocols. A path is split at "/", empty parts are dropped,
/// and each part is decoded once. Of two routes that match, the first one
/// answers.
class RouteTable {
public:
  /// A route and its protocol.
  struct Entry {
    const Protocol *protocol;
    const Route *route;
  };

  explicit RouteTable(std::vector<const Protocol *> ofProtocols);

  /// In the order of /openapi.json.
  std::span<const Protocol *const> protocols() const { return all; }
  std::span<const Entry> routes() const { return entries; }
  /// The protocol of a path, whatever the method. A path without a route, or
  /// with a bad escape, has the first one.
  const Protocol &protocolOf(std::string_view path) const;
  /// The route of a method and a path. Throws ApiError: 400 for a bad escape,
  /// 404, or 405 with Allow.
  RouteMatch find(std::string_view method, std::string_view path) const;
  /// The methods of a path with commas, or nothing if it has no route. "*" has
  /// the methods of all. Throws ApiError (400) for a bad escape.
  std::string methodsOf(std::string_view path) const;
  /// Whether a path answers without a key.
  bool isOpen(std::string_view path) const;

private:
  std::vector<const Protocol *> all;
  std::vector<Entry> entries;
};

/// The table of a server of one model, from Protocols.def, and the table of a
/// server of several models.
const RouteTable &routeTable();
const RouteTable &routerTable();

/// A part of a path, or of a query, with the bytes that its escapes stand for.
/// Throws ApiError (400) for a bad escape.
std::string decodePart(std::string_view part);

/// The answer to OPTIONS. Throws ApiError for a path without a route.
Reply optionsReply(const RouteTable &table, const std::string &path);

/// Throws ApiError for a body that is not JSON as it is. Pages of any origin
/// can send bodies of other types, or of none, without a preflight.
void checkBody(const HttpRequest &request);

/// The "paths" of an OpenAPI description. With `needsKey`, paths of kOpen
/// say that they need none.
nlohmann::ordered_json
describePaths(std::span<const Protocol *const> protocols,
              const ParameterLimits &limits, bool needsKey,
              const std::function<bool(const Route &)> &isOffered);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_ROUTES_H
