//===- Message.cpp - Requests and their answers ---------------------------===//

#include "server/http/Message.h"

#include "qwen/Support/JsonDigits.h"

#include <algorithm>
#include <random>

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

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
  const size_t mark = std::min(target.find('?'), target.size());
  parsed.path = target.substr(0, mark);
  parsed.query = target.substr(std::min(mark + 1, target.size()));
  return parsed;
}

Reply server::errorReply(const ApiError &error, std::string body) {
  Reply reply{.status = error.status(),
              .body = std::move(body),
              .headers = error.headers};
  if (error.status() == 429 || error.status() == 503)
    reply.headers.emplace_back(AnswerHeader::RetryAfter, "1");
  if (error.status() == 401)
    reply.headers.emplace_back(AnswerHeader::WwwAuthenticate, "Bearer");
  return reply;
}

std::optional<Reply> server::takeWhole(ReplyStream &stream,
                                       const Framing &framing) {
  ReplyStream::Part part = stream.take();
  if (!part.isLast)
    return std::nullopt;
  if (const std::optional<ApiError> error = stream.error())
    return framing.error(*error);
  return Reply{.body = std::move(part.text)};
}

std::string server::randomId(const std::string &prefix) {
  std::random_device device;
  char digits[25];
  snprintf(digits, sizeof(digits), "%08x%08x%08x", device(), device(),
           device());
  return prefix + digits;
}

std::string server::dump(const ordered_json &object) {
  return dumpWithDigits(object);
}
