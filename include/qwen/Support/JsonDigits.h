//===- JsonDigits.h - Integers of JSON with all their digits ----*- C++ -*-===//
//
// nlohmann's values have integers of 64 bits; others become doubles, which keep
// 17 digits. What a client gets back, or a model reads, keeps all of them.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_JSONDIGITS_H
#define QWEN_SUPPORT_JSONDIGITS_H

#include "qwen/Support/Json.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace qwen {

/// Parses JSON, which may be no object. An integer past 64 bits becomes a value
/// that is no number (digitsOf). Throws Error like checkJson.
nlohmann::ordered_json parseWithDigits(std::string_view text,
                                       const ErrorText &what,
                                       const JsonLimits &limits = {});

/// The digits of an integer past 64 bits, with its sign; nothing of another
/// value.
std::optional<std::string> digitsOf(const nlohmann::ordered_json &value);

/// The JSON text of a value of parseWithDigits, in one line. U+FFFD replaces
/// bytes that are not UTF-8.
std::string dumpWithDigits(const nlohmann::ordered_json &value);

/// The value with doubles in place of integers past 64 bits.
nlohmann::ordered_json withDoubles(nlohmann::ordered_json value);

} // namespace qwen

#endif // QWEN_SUPPORT_JSONDIGITS_H
