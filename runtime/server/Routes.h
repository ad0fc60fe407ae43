//===- Routes.h - Paths, and what answers them ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_ROUTES_H
#define QWEN_RUNTIME_SERVER_ROUTES_H

#include "server/Service.h"

namespace qwen::server {

/// A path, and what answers it.
struct Route {
  /// "GET" stands for HEAD, too.
  const char *method;
  /// The path in /openapi.json. Requests may leave out its "/v1", or put it
  /// before a path without. A last part in braces is a parameter.
  const char *path;
  const char *summary;
  /// The parameters of a POST.
  std::optional<ParameterSet> parameters;
  Reply (Service::*answer)(const HttpRequest &request, const WakeFn &wake);
  /// Answers without a key.
  bool isOpen = false;
  /// What requests may have in place of "v1".
  const char *otherVersion = "";
};

std::span<const Route> routeTable();

/// The target of a request line (RFC 9112, 3.2) without its query.
struct Target {
  /// Empty unless the target is a whole URL.
  std::string authority;
  std::string path;
};

Target parseTarget(std::string_view target);

struct RouteMatch {
  const Route &route;
  /// The decoded parameter of the path; may have slashes.
  std::string parameter;
};

/// The route of a method and a path. The path is split at "/", empty parts are
/// dropped, and each part is decoded once. Throws ApiError: 400 for a bad
/// escape, 404, or 405 with Allow.
RouteMatch findRoute(std::string_view method, std::string_view path);

/// The methods of a path with commas, or nothing if it has no route. "*" has
/// the methods of all. Throws ApiError (400) for a bad escape.
std::string methodsOf(std::string_view path);

/// Whether a path answers without a key.
bool isOpenPath(std::string_view path);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_ROUTES_H
