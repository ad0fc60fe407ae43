//===- ApiError.h - Errors that a client receives ---------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_APIERROR_H
#define QWEN_RUNTIME_SERVER_HTTP_APIERROR_H

#include "server/http/Headers.h"

#include "qwen/Support/Error.h"

#include <optional>
#include <string>

namespace qwen::server {

/// What programs may tell an error by. Each protocol has words of its own.
enum class ErrorCode : uint8_t {
  None,
  InvalidKey,
  UnknownParameter,
  UnknownModel,
  /// The model has another output.
  UnsupportedModel,
  /// A prompt is longer than the context.
  LongContext,
  QueueFull,
};

/// An answer with an HTTP status of 4xx or 5xx.
class ApiError : public Error {
public:
  /// Numbers of tokens.
  struct Lengths {
    int64_t prompt, context;
  };

  /// `parameter` names the parameter at fault, if one is.
  ApiError(unsigned status, const std::string &message,
           std::string parameter = "", ErrorCode code = ErrorCode::None)
      : Error(message), httpStatus(status), wrong(std::move(parameter)),
        errorCode(code) {}

  unsigned status() const { return httpStatus; }
  /// The parameter at fault; empty if none is.
  const std::string &parameter() const { return wrong; }
  ErrorCode code() const { return errorCode; }

  /// The lengths of a prompt that is longer than the context, where known.
  std::optional<Lengths> lengths = {};
  /// Headers that the answer has besides the headers of its status.
  AnswerHeaders headers;

private:
  unsigned httpStatus;
  std::string wrong;
  ErrorCode errorCode;
};

/// The error about a parameter, or a member `name` of one, that nobody reads.
ApiError unknownParameter(const std::string &name);

/// The name of an element of a list in errors.
std::string indexed(const std::string &list, size_t index);

/// What a client receives for an error of the runtime.
ApiError asApiError(const Error &error);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_APIERROR_H
