//===- Json.h - Bounds of JSON in files -------------------------*- C++ -*-===//

#ifndef QWEN_SUPPORT_JSON_H
#define QWEN_SUPPORT_JSON_H

#include "qwen/Support/Error.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Limits of the JSON in a file. Real files stay far below them.
struct JsonLimits {
  /// Depth of nested arrays and objects.
  size_t depth = 64;
  /// Elements of an array.
  size_t elements = SIZE_MAX;
  /// Keys of an object.
  size_t keys = SIZE_MAX;
};

/// Limits of the JSON in a request.
inline constexpr JsonLimits kRequestJson = {
    .depth = 64, .elements = size_t{1} << 20, .keys = 1024};

/// Throws Error unless `text` is JSON within `limits` and no object has a key
/// twice (parsers silently take one of the two). Stops at the first error,
/// builds no values, and takes O(n log n) time. `what` begins the message: the
/// file, or "FILE: its header".
void checkJson(std::string_view text, const ErrorText &what,
               const JsonLimits &limits);

/// The keys of the object `path` ("quantization_config.dynamic") of a JSON text
/// in its order. `text` is valid JSON.
std::vector<std::string> keysInOrder(std::string_view text,
                                     std::string_view path);

} // namespace qwen

#endif // QWEN_SUPPORT_JSON_H
