//===- Headers.h - Headers of requests and answers --------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_HEADERS_H
#define QWEN_RUNTIME_SERVER_HTTP_HEADERS_H

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qwen::server {

/// The headers that this server gives its answers. Headers of the body, of the
/// connection and of CORS are not among them. A browser lets a page read all of
/// them.
enum class AnswerHeader : uint8_t {
  AcceptEncoding,
  AccelBuffering,
  Allow,
  CacheControl,
  ContentEncoding,
  ContentSecurityPolicy,
  ContentTypeOptions,
  Date,
  ETag,
  ProcessStart,
  ReferrerPolicy,
  RequestId,
  RetryAfter,
  Server,
  Vary,
  WwwAuthenticate,
};

using AnswerHeaders = std::vector<std::pair<AnswerHeader, std::string>>;

std::string_view nameOf(AnswerHeader header);
/// The names of all of them, with commas: Access-Control-Expose-Headers.
const std::string &exposedHeaders();

/// The tokens of a list with commas, again with commas. What is not a token
/// (RFC 9110, 5.6.2) is left out.
std::string tokensOf(std::string_view list);

/// Whether an Accept-Encoding takes a coding such as "gzip".
bool acceptsCoding(std::string_view list, std::string_view coding);

/// Whether an If-None-Match has an entity tag, which is in quotes.
bool hasEntityTag(std::string_view list, std::string_view tag);

/// Compares ASCII without case.
bool equalsNoCase(std::string_view a, std::string_view b);

/// A Content-Type without its parameters: "text/html" of "text/html; x=y".
std::string_view mediaTypeOf(std::string_view contentType);

/// The present time as in the header Date.
std::string httpDate();

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_HEADERS_H
