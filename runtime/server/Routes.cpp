//===- Routes.cpp - Paths, and what answers them --------------------------===//

#include "server/Routes.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <charconv>

using namespace qwen;
using namespace qwen::server;

const RouteTable &server::routeTable() {
  static const RouteTable table({
#define QWEN_PROTOCOL(Name) &protocols::Name,
#include "server/protocols/Protocols.def"
  });
  return table;
}

const RouteTable &server::routerTable() {
  static const RouteTable table({
#define QWEN_PROTOCOL(Name) &protocols::Name,
#define QWEN_ROUTER_PROTOCOL QWEN_PROTOCOL
#include "server/protocols/Protocols.def"
  });
  return table;
}

Reply server::optionsReply(const RouteTable &table, const std::string &path) {
  const std::string methods = table.methodsOf(path);
  if (methods.empty())
    throw ApiError(404, "no such path: " + quote(path));
  return {.body = "", .headers = {{AnswerHeader::Allow, methods}}};
}

void server::checkBody(const HttpRequest &request) {
  if (!equalsNoCase(mediaTypeOf(request.contentType), "application/json"))
    throw ApiError(400, "the content type must be application/json, not " +
                            quote(request.contentType));
  if (request.body.empty())
    throw ApiError(400, "the body is empty when a JSON object is needed");
  if (request.contentEncoding.empty() ||
      equalsNoCase(request.contentEncoding, "identity"))
    return;
  ApiError error(415, "the content encoding " + quote(request.contentEncoding) +
                          " is not supported; send the body without "
                          "compression and without Content-Encoding");
  error.headers.emplace_back(AnswerHeader::AcceptEncoding, "identity");
  throw ApiError(error);
}

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

std::string server::decodePart(std::string_view part) {
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
    parts.push_back(decodePart(part));
  return parts;
}

/// The parameter of a path, which may be empty, if the route has this path.
static std::optional<std::string> match(const Route &route,
                                        std::span<const std::string> parts) {
  constexpr std::string_view kVersion = "v1";
  if (!parts.empty() &&
      (parts[0] == kVersion || parts[0] == route.otherVersion))
    parts = parts.subspan(1);
  std::string parameter;
  for (std::string_view expected : partsOf(route.path)) {
    if (expected == kVersion)
      continue;
    if (parts.empty())
      return std::nullopt;
    if (!expected.starts_with('{')) {
      if (parts[0] != expected)
        return std::nullopt;
      parts = parts.subspan(1);
      continue;
    }
    parameter = parts[0];
    parts = parts.subspan(1);
    for (; (route.traits & kSlashes) && !parts.empty();
         parts = parts.subspan(1))
      parameter += "/" + parts[0];
  }
  return parts.empty() ? std::optional(std::move(parameter)) : std::nullopt;
}

RouteTable::RouteTable(std::vector<const Protocol *> ofProtocols)
    : all(std::move(ofProtocols)) {
  for (const Protocol *protocol : all)
    for (const Route &route : protocol->routes)
      entries.push_back({protocol, &route});
}

const Protocol &RouteTable::protocolOf(std::string_view path) const {
  try {
    const std::vector<std::string> parts = decodedParts(path);
    for (const auto &[protocol, route] : entries)
      if (match(*route, parts))
        return *protocol;
  } catch (const ApiError &) {
    // `find` tells the client.
    return *all.front();
  }
  return *all.front();
}

std::string RouteTable::methodsOf(std::string_view path) const {
  const std::vector<std::string> parts = decodedParts(path);
  std::string methods;
  for (const auto &[protocol, route] : entries)
    if ((path == "*" || match(*route, parts)) &&
        methods.find(route->method) == std::string::npos)
      methods += std::string(route->method) +
                 (std::string_view(route->method) == "GET" ? ", HEAD, " : ", ");
  return methods.empty() ? "" : methods + "OPTIONS";
}

RouteMatch RouteTable::find(std::string_view method,
                            std::string_view path) const {
  const std::vector<std::string> parts = decodedParts(path);
  const std::string_view asked = method == "HEAD" ? "GET" : method;
  for (const auto &[protocol, route] : entries)
    if (asked == route->method)
      if (std::optional<std::string> parameter = match(*route, parts))
        return {*protocol, *route, *std::move(parameter)};
  const std::string methods = methodsOf(path);
  if (methods.empty())
    throw ApiError(404, "no such path: " + quote(path));
  ApiError error(405,
                 quote(path) + " takes " + methods + ", not " + quote(method));
  error.headers.emplace_back(AnswerHeader::Allow, methods);
  throw ApiError(error);
}

bool RouteTable::isOpen(std::string_view path) const {
  try {
    const std::vector<std::string> parts = decodedParts(path);
    return std::ranges::any_of(entries, [&](const Entry &entry) {
      return (entry.route->traits & kOpen) && match(*entry.route, parts);
    });
  } catch (const ApiError &) {
    return false;
  }
}
