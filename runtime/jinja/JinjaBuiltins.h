//===- JinjaBuiltins.h - Filters, tests, methods, functions -----*- C++ -*-===//
//
// What templates can call without defining it. All throw Failure.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_JINJA_JINJABUILTINS_H
#define QWEN_RUNTIME_JINJA_JINJABUILTINS_H

#include "jinja/JinjaValue.h"

#include <string_view>
#include <vector>

namespace qwen::jinja {

/// Arguments of a builtin by place or name.
class ArgumentReader {
public:
  ArgumentReader(std::string_view calledName, const Arguments &given)
      : callee(calledName), arguments(given) {}

  /// Argument `index`, or the one called `name`; throws where there is none.
  const Value &need(size_t index, std::string_view name) const;
  Value optional(size_t index, std::string_view name,
                 const Value &byDefault) const;
  /// An int, with 'none' for the default, too.
  int64_t integer(size_t index, std::string_view name, int64_t byDefault) const;
  /// A string.
  const std::string &text(size_t index, std::string_view name) const;

  const Arguments &all() const { return arguments; }
  uint64_t weight() const;

private:
  const Value *find(size_t index, std::string_view name) const;

  std::string callee;
  const Arguments &arguments;
};

/// Finds the first place of a text in others, or the last one (`FromEnd`). By
/// the algorithm of Knuth, Morris and Pratt, this takes linear time, where
/// std::string::find takes the product of both lengths.
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
  /// The length of the match that `next` extends or ends, after `matched`
  /// characters that match.
  size_t extend(size_t matched, char next) const;

  std::string_view wanted;
  /// For a match of i + 1 characters, the length of the next shorter match that
  /// ends at the same place.
  std::vector<uint32_t> shorter;
};

/// `text` without the characters of `chars` (white space where it is null) at
/// its ends.
std::string_view strip(std::string_view text, const std::string *chars,
                       bool atBegin, bool atEnd);
std::string toLower(std::string_view text);
std::string toUpper(std::string_view text);

Value applyFilter(Interpreter &interpreter, std::string_view name,
                  const Value &input, const Arguments &arguments);

bool applyTest(Interpreter &interpreter, std::string_view name,
               const Value &input, const Arguments &arguments);

/// Calls a method of a string, list or dict. Returns nullopt where it has none
/// of that name.
std::optional<Value> callMethod(Interpreter &interpreter, const Value &object,
                                std::string_view name,
                                const Arguments &arguments);

/// Calls a function that every template knows. Returns nullopt where there is
/// none of that name.
std::optional<Value> callFunction(Interpreter &interpreter,
                                  std::string_view name,
                                  const Arguments &arguments);

} // namespace qwen::jinja

#endif // QWEN_RUNTIME_JINJA_JINJABUILTINS_H
