//===- ApiError.cpp - Errors that a client receives -----------------------===//

#include "server/http/ApiError.h"

#include "qwen/ABI/ModelOutput.h"

using namespace qwen;
using namespace qwen::server;

std::string server::indexed(const std::string &list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

ApiError server::unknownParameter(const std::string &name) {
  return {400, "unknown parameter " + name, name, ErrorCode::UnknownParameter};
}

ApiError server::asApiError(const Error &error) {
  if (const auto *api = dynamic_cast<const ApiError *>(&error))
    return *api;
  if (dynamic_cast<const NoOutput *>(&error))
    return {400, error.what(), "model", ErrorCode::UnsupportedModel};
  switch (error.kind()) {
  case ErrorKind::QueueFull:
    return {429, error.what(), "", ErrorCode::QueueFull};
  case ErrorKind::NoPage:
  case ErrorKind::NoMemory:
    return {503, error.what()};
  default:
    return {500, error.what()};
  }
}
