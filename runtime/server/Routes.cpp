//===- Routes.cpp - Paths, and what answers them --------------------------===//

#include "server/Routes.h"

#include "server/http/Headers.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <charconv>

using namespace qwen;
using namespace qwen::server;

static constexpr std::array kRoutes = std::to_array<Route>({
    {"POST", "/v1/chat/completions", "Answer a conversation", kChatParameters,
     &Service::chat},
    {"POST", "/v1/completions", "Continue texts", kCompletionParameters,
     &Service::complete},
    {"POST", "/v1/embeddings", "Turn texts into vectors", kEmbeddingParameters,
     &Service::embed},
    {.method = "POST",
     .path = "/v1/rerank",
     .summary = "Order documents by how well they answer a query",
     .parameters = kRerankParameters,
     .answer = &Service::rerank,
     .otherVersion = "v2"},
    {"GET", "/v1/models", "List the model", {}, &Service::models},
    {"GET", "/v1/models/{model}", "Describe the model", {}, &Service::oneModel},
    {"POST", "/tokenize", "Convert a text to token ids", kTokenizeParameters,
     &Service::tokenize},
    {"POST", "/detokenize", "Convert token ids to text", kDetokenizeParameters,
     &Service::detokenize},
    {"GET",
     "/tokenizer_info",
     "Describe the tokenizer",
     {},
     &Service::tokenizerInfo},
    {"GET",
     "/health",
     "Whether the server takes requests",
     {},
     &Service::health,
     true},
    // Where load balancers ask that nobody has told a path.
    {"GET", "/", "The same as /health", {}, &Service::health, true},
    {"GET", "/livez", "Whether the server lives", {}, &Service::live, true},
    {"GET", "/version", "The version of the server", {}, &Service::version},
    {"GET", "/metrics", "Metrics for Prometheus", {}, &Service::metricsText},
    {"GET", "/openapi.json", "This description", {}, &Service::openApi},
});

std::span<const Route> server::routeTable() { return kRoutes; }

/// The parts of a path between its slashes.
static std::vector<std::string_view> partsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (slash > 0)
      parts.push_back(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return parts;
}

/// A part of a path with the bytes that its escapes stand for.
static std::string decode(std::string_view part) {
  constexpr size_t kDigits = 2;
  std::string text;
  while (!part.empty()) {
    const char first = part.front();
    part.remove_prefix(1);
    if (first != '%') {
      text += first;
      continue;
    }
    uint8_t byte = 0;
    const char *const begin = part.data();
    const char *const end = begin + std::min(part.size(), kDigits);
    const auto [last, wrong] = std::from_chars(begin, end, byte, 16);
    if (wrong != std::errc() || last != begin + kDigits || byte == 0)
      throw ApiError(400,
                     "the path has " +
                         quote("%" + std::string(part.substr(0, kDigits))) +
                         "; a % needs two hexadecimal digits that are not "
                         "00 (%25 stands for %)");
    text += static_cast<char>(byte);
    part.remove_prefix(kDigits);
  }
  return text;
}

static std::vector<std::string> decodedParts(std::string_view path) {
  std::vector<std::string> parts;
  for (std::string_view part : partsOf(path))
    parts.push_back(decode(part));
  return parts;
}

/// The parameter of a path, which may be empty, if it is that of a route.
static std::optional<std::string> match(const Route &route,
                                        std::span<const std::string> parts) {
  constexpr std::string_view kVersion = "v1";
  if (!parts.empty() &&
      (parts[0] == kVersion || parts[0] == route.otherVersion))
    parts = parts.subspan(1);
  for (std::string_view expected : partsOf(route.path)) {
    if (expected == kVersion)
      continue;
    if (parts.empty())
      return std::nullopt;
    if (expected.starts_with('{')) {
      std::string rest = parts[0];
      for (const std::string &part : parts.subspan(1))
        rest += "/" + part;
      return rest;
    }
    if (parts[0] != expected)
      return std::nullopt;
    parts = parts.subspan(1);
  }
  return parts.empty() ? std::optional<std::string>("") : std::nullopt;
}

Target server::parseTarget(std::string_view target) {
  Target parsed;
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!equalsNoCase(target.substr(0, scheme.size()), scheme))
      continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    parsed.authority = target.substr(0, end);
    target.remove_prefix(end);
    break;
  }
  parsed.path = target.substr(0, target.find('?'));
  return parsed;
}

std::string server::methodsOf(std::string_view path) {
  const std::vector<std::string> parts = decodedParts(path);
  std::string methods;
  for (const Route &route : kRoutes)
    if ((path == "*" || match(route, parts)) &&
        methods.find(route.method) == std::string::npos)
      methods += std::string(route.method) +
                 (std::string_view(route.method) == "GET" ? ", HEAD, " : ", ");
  return methods.empty() ? "" : methods + "OPTIONS";
}

RouteMatch server::findRoute(std::string_view method, std::string_view path) {
  const std::vector<std::string> parts = decodedParts(path);
  const std::string_view asked = method == "HEAD" ? "GET" : method;
  for (const Route &route : kRoutes)
    if (asked == route.method)
      if (std::optional<std::string> parameter = match(route, parts))
        return {route, *std::move(parameter)};
  const std::string methods = methodsOf(path);
  if (methods.empty())
    throw ApiError(404, "no such path: " + quote(path));
  ApiError error(405,
                 quote(path) + " takes " + methods + ", not " + quote(method));
  error.headers.emplace_back(AnswerHeader::Allow, methods);
  throw ApiError(error);
}

bool server::isOpenPath(std::string_view path) {
  try {
    const std::vector<std::string> parts = decodedParts(path);
    return std::ranges::any_of(kRoutes, [&](const Route &route) {
      return route.isOpen && match(route, parts);
    });
  } catch (const ApiError &) {
    return false;
  }
}
