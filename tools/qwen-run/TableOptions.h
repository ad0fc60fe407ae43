//===- TableOptions.h - Options of a table of options -----------*- C++ -*-===//
//
// Adds the rows of ServerOptions.def and EngineOptions.def to a command.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_TABLEOPTIONS_H
#define QWEN_RUN_TABLEOPTIONS_H

#include "CommandLine.h"

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace qwen::run {

/// The unit of sizes, which may have a unit of 1024.
inline constexpr std::string_view kSizeUnit = "SIZE";

/// Adds an option whose value is `to`: a bool, a number in [least, most], an
/// enumeration with wordsOf, a text or a list of texts.
template <typename T, typename Least, typename Most>
void addTableOption(const Command &command, const std::string &names, T &to,
                    const std::string &unit, [[maybe_unused]] Least least,
                    [[maybe_unused]] Most most, const std::string &help) {
  if constexpr (std::is_same_v<T, bool>) {
    command.addFlag(names, to, help);
  } else if constexpr (std::is_enum_v<T>) {
    const auto words = wordsOf(to);
    command.addChoice(names, to, {words.begin(), words.end()}, help);
  } else if constexpr (std::is_arithmetic_v<T>) {
    const T first = static_cast<T>(least), last = static_cast<T>(most);
    if constexpr (std::is_same_v<T, int64_t>)
      if (unit == kSizeUnit) {
        command.addSize(names, to, help, first, last);
        return;
      }
    const std::string range =
        "; " + numberText(first) + " to " + numberText(last);
    command.addNumber(names, to, help + range, first, last).type(unit);
  } else if constexpr (std::is_same_v<T, std::string>) {
    command.addText(names, to, help).type(unit);
  } else {
    const Option option = command.addTexts(names, to, help);
    option.type(unit).list(',');
    std::string usual;
    for (const std::string &each : to)
      usual += (usual.empty() ? "" : ",") + each;
    if (!usual.empty())
      option.defaultText(usual);
  }
}

} // namespace qwen::run

#endif // QWEN_RUN_TABLEOPTIONS_H
