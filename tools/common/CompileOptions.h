//===- CompileOptions.h - The options of a compile --------------*- C++ -*-===//
//
// CompileOptions.def as data, for both programs.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TOOLS_COMPILEOPTIONS_H
#define QWEN_TOOLS_COMPILEOPTIONS_H

#include "CommandLine.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// How often an option may stand, and whether it has a value.
enum class OptionForm : uint8_t { One, Many, Flag, Maybe };

/// A row of CompileOptions.def.
struct CompileOption {
  std::string name;
  OptionForm form;
  std::string typeName;

  /// Whether a value begins with the path of an input.
  bool namesInput() const {
    return typeName.starts_with("PATH") || typeName.starts_with("FILE");
  }
};

const std::vector<CompileOption> &compileOptions();

/// Gives the option of each row, which `command` must have, its form.
void setCompileForms(const Command &command);

/// An option of a command line with its value; none for a flag.
struct CompileArgument {
  const CompileOption *option;
  std::string value;

  /// "--name" or "--name=value".
  std::string text() const;
};

/// Adds an option for each row, hidden from the help, unless `command` has an
/// option of that name. What is given is appended to `arguments`, by rows.
void addCompileOptions(const Command &command,
                       std::vector<CompileArgument> &arguments);

} // namespace qwen

#endif // QWEN_TOOLS_COMPILEOPTIONS_H
