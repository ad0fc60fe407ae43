//===- ApiError.cpp - Errors that a client receives -----------------------===//

#include "server/http/ApiError.h"

#include "qwen/ABI/ModelOutput.h"

using namespace qwen;
using namespace qwen::server;
using nlohmann::ordered_json;

static const char *typeOf(unsigned status) {
  switch (status) {
  case 401:
  case 403:
    return "authentication_error";
  case 404:
    return "not_found_error";
  case 429:
    return "rate_limit_error";
  case 503:
    return "unavailable_error";
  default:
    return status < 500 ? "invalid_request_error" : "server_error";
  }
}

ordered_json ApiError::object() const {
  const auto orNull = [](const std::string &text) {
    return text.empty() ? ordered_json() : ordered_json(text);
  };
  ordered_json error = {{"message", what()},
                        {"type", typeOf(httpStatus)},
                        {"param", orNull(parameter)},
                        {"code", orNull(code)}};
  error.update(extra);
  return {{"error", error}};
}

std::string server::indexed(const std::string &list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

ApiError server::unknownParameter(const std::string &name) {
  return {400, "unknown parameter " + name, name, "unknown_parameter"};
}

ApiError server::asApiError(const Error &error) {
  if (const auto *api = dynamic_cast<const ApiError *>(&error))
    return *api;
  if (dynamic_cast<const NoOutput *>(&error))
    return {400, error.what(), "model", "unsupported_model"};
  switch (error.kind()) {
  case ErrorKind::QueueFull:
    return {429, error.what(), "", "queue_full"};
  case ErrorKind::NoPage:
  case ErrorKind::NoMemory:
    return {503, error.what()};
  default:
    return {500, error.what()};
  }
}
