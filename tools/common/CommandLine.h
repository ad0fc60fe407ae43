//===- CommandLine.h - Command lines and their errors -----------*- C++ -*-===//
//
// Additions to CLI11: numbers are never rounded or wrapped silently, and errors
// are one line with the argument, the found value and the valid values.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TOOLS_COMMANDLINE_H
#define QWEN_TOOLS_COMMANDLINE_H

#include "qwen/Support/Error.h"

#include <CLI/CLI.hpp>

#include <limits>
#include <optional>
#include <string>
#include <type_traits>

namespace qwen {

/// An invalid command line. Mains exit with status 2.
class UsageError : public Error {
public:
  /// Appends how to get the help of `app`.
  UsageError(const CLI::App &app, const std::string &message);
};

/// The names of the commands of `app`, with commas between.
std::string commandList(const CLI::App &app);

/// Parses the arguments and runs the callback of the command that they name.
/// Throws UsageError, CLI::Success for a request for help, and the exceptions
/// of the callback.
void parseCommandLine(CLI::App &app, int argc, const char *const *argv);

/// `text` as a decimal number from `least` to `most`, both finite. Throws
/// CLI::ValidationError, which names `option`. T is int32_t, int64_t, uint64_t,
/// float or double.
template <typename T>
T parseNumber(const std::string &option, const std::string &text, T least,
              T most);

/// The type of the number in a variable or in its std::optional.
template <typename T> struct NumberOf {
  using Type = T;
};
template <typename T> struct NumberOf<std::optional<T>> {
  using Type = T;
};

/// Adds an option for a number from `least` to `most`, read by parseNumber.
template <typename Target, typename T = typename NumberOf<Target>::Type>
CLI::Option *
addNumber(CLI::App *app, const std::string &names, Target &to,
          const std::string &description, std::type_identity_t<T> least,
          std::type_identity_t<T> most = std::numeric_limits<T>::max()) {
  const std::string option = names.substr(names.rfind(',') + 1);
  return app
      ->add_option(
          names,
          [&to, option, least, most](const CLI::results_t &texts) {
            to = parseNumber<T>(option, texts.front(), least, most);
            return true;
          },
          description)
      ->type_name(std::is_integral_v<T> ? "INT" : "FLOAT");
}

} // namespace qwen

#endif // QWEN_TOOLS_COMMANDLINE_H
