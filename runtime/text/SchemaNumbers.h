//===- SchemaNumbers.h - Numbers of schemas that grammars keep --*- C++ -*-===//
//
// llguidance makes a double of each number of a schema, and adds 1 to it, or
// makes an integer of 64 bits of it. What that would change is decided here.
// parseWithDigits gives the values.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_SCHEMANUMBERS_H
#define QWEN_RUNTIME_TEXT_SCHEMANUMBERS_H

#include <nlohmann/json.hpp>

namespace qwen {

/// Moves the bounds of a schema inwards to numbers that stay what they are, and
/// erases maximum counts that no answer reaches. Throws Error, which names the
/// keyword, if a number cannot be kept, such as a constant with an
/// inexactNumber.
void checkNumbers(nlohmann::ordered_json &schema);

/// A number in `value`, a constant, that llguidance changes; null if there is
/// none.
const nlohmann::ordered_json *
inexactNumber(const nlohmann::ordered_json &value);

/// The divisor of a schema that was checked, without its decimal point; 1 if it
/// has none. A state stands for each remainder.
double divisorOf(const nlohmann::ordered_json &schema);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_SCHEMANUMBERS_H
