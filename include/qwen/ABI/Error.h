//===- Error.h - The exception of this project ------------------*- C++ -*-===//
//
// The one exception type of this project. Readers of files and the runtime
// throw it, mains catch it and print one line.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_ERROR_H
#define QWEN_ABI_ERROR_H

#include <stdexcept>
#include <string>

namespace qwen {

/// One line in lower case, without the program's name. It names the file, the
/// tensor or op, what was found and what was needed and, if possible, the
/// remedy.
class Error : public std::runtime_error {
public:
  /// Makes `what` printable and cuts it after 4000 bytes, so that callers need
  /// not escape names and texts of files.
  explicit Error(const std::string &what);
};

} // namespace qwen

#endif // QWEN_ABI_ERROR_H
