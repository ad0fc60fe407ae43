//===- JinjaBuiltins.h - Filters, tests, methods, functions -----*- C++ -*-===//
//
// The filters, tests, methods and functions of every template. All throw
// Failure.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_JINJA_JINJABUILTINS_H
#define QWEN_RUNTIME_JINJA_JINJABUILTINS_H

#include "jinja/JinjaValue.h"

#include <string_view>
#include <vector>

namespace qwen::jinja {

/// Reads the arguments of a builtin by position or name.
class ArgumentReader {
public:
  ArgumentReader(std::string_view calledName, const Arguments &given)
      : callee(calledName), arguments(given) {}

  /// Argument `index`, or the one called `name`. Throws Failure if both are
  /// missing.
  const Value &need(size_t index, std::string_view name) const;
  Value optional(size_t index, std::string_view name,
                 const Value &byDefault) const;
  /// An int; `byDefault` if it is missing or none.
  int64_t integer(size_t index, std::string_view name, int64_t byDefault) const;
  /// A string.
  const MarkedText &text(size_t index, std::string_view name) const;

  const Arguments &all() const { return arguments; }
  uint64_t weight() const;

private:
  const Value *find(size_t index, std::string_view name) const;

  std::string callee;
  const Arguments &arguments;
};

/// Finds the first occurrence of a text in others, or the last one (`FromEnd`).
/// The algorithm of Knuth, Morris and Pratt takes linear time; the time of
/// std::string::find is the product of both lengths.
template <bool FromEnd> class TextSearch {
public:
  /// `wanted` must outlive this object.
  explicit TextSearch(std::string_view wanted);

  /// The offset of the wanted text in `text`, or npos.
  size_t find(std::string_view text) const;

private:
  static char at(std::string_view text, size_t i) {
    return text[FromEnd ? text.size() - 1 - i : i];
  }
  /// The length of the match after the character `next`, if it was `matched`
  /// before.
  size_t extend(size_t matched, char next) const;

  std::string_view wanted;
  /// For a match of i + 1 characters, the length of the next shorter match that
  /// ends at the same place.
  std::vector<uint32_t> shorter;
};

/// `text` without the characters of `chars` (white space if it is null) at its
/// ends.
std::string_view strip(std::string_view text, const std::string *chars,
                       bool atBegin, bool atEnd);
std::string toLower(std::string_view text);
std::string toUpper(std::string_view text);

Value applyFilter(Interpreter &interpreter, std::string_view name,
                  const Value &input, const Arguments &arguments);

bool applyTest(Interpreter &interpreter, std::string_view name,
               const Value &input, const Arguments &arguments);

/// Calls a method of a string, list or dict. Returns nullopt if there is no
/// such method.
std::optional<Value> callMethod(Interpreter &interpreter, const Value &object,
                                std::string_view name,
                                const Arguments &arguments);

/// Calls a builtin function. Returns nullopt if there is no such function.
std::optional<Value> callFunction(Interpreter &interpreter,
                                  std::string_view name,
                                  const Arguments &arguments);

} // namespace qwen::jinja

#endif // QWEN_RUNTIME_JINJA_JINJABUILTINS_H
