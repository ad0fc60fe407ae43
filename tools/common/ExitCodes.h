//===- ExitCodes.h - What the exit status of a tool says --------*- C++ -*-===//

#ifndef QWEN_TOOLS_EXITCODES_H
#define QWEN_TOOLS_EXITCODES_H

#include "qwen/Support/Error.h"

#include <exception>
#include <string>

namespace qwen {

/// The rows of ExitCodes.def. A program that a signal ends has 128 and its
/// number.
enum class ExitCode : int {
#define QWEN_EXIT_CODE(Name, Status, ...) Name = Status,
#include "ExitCodes.def"
};

/// The exit status after `error`.
int exitCodeOf(const std::exception &error);

/// An error of another program, whose exit status becomes this program's.
class ProgramError : public Error {
public:
  ProgramError(const std::string &line, int exitStatus)
      : Error(line), status(exitStatus) {}

  const int status;
};

} // namespace qwen

#endif // QWEN_TOOLS_EXITCODES_H
