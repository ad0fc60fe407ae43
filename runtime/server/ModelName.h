//===- ModelName.h - The model that a request names -------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_MODELNAME_H
#define QWEN_RUNTIME_SERVER_MODELNAME_H

#include <string>
#include <string_view>

namespace qwen::server {

/// The member "model" of a JSON object; empty if it has none. Reads no further
/// than that member. Throws ApiError (400) if it is not a string, or if there
/// is none and `body` is no JSON object within the limits of requests.
std::string modelInBody(std::string_view body);

/// The parameter "model" of a query ("a=1&model=b"), decoded; empty if it has
/// none. Throws ApiError (400) for a bad escape.
std::string modelInQuery(std::string_view query);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_MODELNAME_H
