//===- KeptSchema.h - JSON schemas that grammars keep -----------*- C++ -*-===//
//
// What a JSON schema becomes before a grammar is made of it, and its bounds.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_KEPTSCHEMA_H
#define QWEN_RUNTIME_TEXT_KEPTSCHEMA_H

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>

namespace qwen {

/// Bounds of a schema. They bound the time and the memory of its grammar, as
/// making it is a walk over what they count.
struct SchemaLimits {
  /// Maximum divisor of multipleOf, as an integer without its decimal point.
  /// The divisors of one number are multiplied. A state stands for a remainder.
  static constexpr int64_t kDivisor = 10000;
  /// Maximum number of ways in which the patterns, formats and lengths of one
  /// string go on together with a byte.
  static constexpr int64_t kWays = 4096;
  /// Maximum number of parts of the schema after alternatives and references
  /// are combined. One takes about 4 us and 300 bytes.
  static constexpr int64_t kParts = 250000;
  /// Maximum number of schemas in each other, through references as well. The
  /// walk takes about 1 KiB of the stack for each.
  static constexpr int64_t kDepth = 500;
};

/// The same schema for llguidance: without keywords that forbid nothing, such
/// as a format that is not known (JSON Schema 2020-12 Validation, 7.2.3), and
/// with bounds of numbers that a double has. Throws Error, which names the
/// keyword and its place, if a value of a keyword cannot be kept, such as a
/// constant with an inexactNumber (SchemaNumbers.h), or if the schema exceeds
/// SchemaLimits.
nlohmann::ordered_json keptSchema(nlohmann::ordered_json schema);

/// Whether a keyword with this value forbids no value.
bool forbidsNothing(std::string_view keyword,
                    const nlohmann::ordered_json &value);

/// Calls `act` for the schemas that the keywords of a schema give its value and
/// the parts of its value, without those behind references.
void forEachPart(
    const nlohmann::ordered_json &schema,
    const std::function<void(const nlohmann::ordered_json &part)> &act);

/// A schema that allows all documents of `schema`, without keywords that
/// grammars never keep. oneOf becomes anyOf.
nlohmann::ordered_json loosenedSchema(nlohmann::ordered_json schema);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_KEPTSCHEMA_H
