//===- ApiError.h - Errors that a client receives ---------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_APIERROR_H
#define QWEN_RUNTIME_SERVER_HTTP_APIERROR_H

#include "server/http/Headers.h"

#include "qwen/Support/Error.h"

#include <nlohmann/json.hpp>

#include <string>

namespace qwen::server {

/// An answer with an HTTP status of 4xx or 5xx.
class ApiError : public Error {
public:
  /// `parameter` names the parameter at fault, if one is.
  ApiError(unsigned status, const std::string &message,
           std::string parameter = "", std::string code = "")
      : Error(message), httpStatus(status), parameter(std::move(parameter)),
        code(std::move(code)) {}

  unsigned status() const { return httpStatus; }
  /// Members of the error object besides OpenAI's.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  /// Headers that the answer has besides the headers of its status.
  AnswerHeaders headers;

  /// {"error": {"message", "type", "param", "code"}}.
  nlohmann::ordered_json object() const;

private:
  unsigned httpStatus;
  std::string parameter, code;
};

/// The error about a parameter, or a member `name` of one, that nobody reads.
ApiError unknownParameter(const std::string &name);

/// The name of an element of a list in errors.
std::string indexed(const std::string &list, size_t index);

/// What a client receives for an error of the runtime.
ApiError asApiError(const Error &error);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_APIERROR_H
