//===- Named.h - Values by their names --------------------------*- C++ -*-===//
//
// The values of an enumeration have names in files and on command lines.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_NAMED_H
#define QWEN_SUPPORT_NAMED_H

#include <cstddef>
#include <optional>
#include <string_view>

namespace qwen {

/// The first of `values` that `nameOf` gives the name `name`, or none.
template <typename Value, size_t Count, typename NameOf>
constexpr std::optional<Value> findNamed(const Value (&values)[Count],
                                         std::string_view name, NameOf nameOf) {
  for (const Value &value : values)
    if (nameOf(value) == name)
      return value;
  return std::nullopt;
}

} // namespace qwen

#endif // QWEN_SUPPORT_NAMED_H
