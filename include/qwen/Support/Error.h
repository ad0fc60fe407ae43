//===- Error.h - The exception of this project ------------------*- C++ -*-===//
//
// The one exception type of this project. Readers of files and the runtime
// throw it, mains catch it and print one line.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_ERROR_H
#define QWEN_SUPPORT_ERROR_H

#include <cstdint>
#include <stdexcept>
#include <string>

namespace qwen {

/// What a caller can react to. The C interface returns the negative number.
enum class ErrorKind : int32_t {
  /// All that has no kind of its own: only the text says more.
  General = 1,
  /// A number was not finite while a token ran.
  NotFinite = 2,
  /// No page of the KV cache is free.
  NoPage = 3,
  /// A position is past the context.
  PastContext = 4,
  /// A token id is not in the vocabulary.
  InvalidToken = 5,
  /// The maximum number of sequences is open.
  NoSequence = 6,
  /// The system has no memory left.
  NoMemory = 7,
  /// The maximum number of requests waits.
  QueueFull = 8,
  /// The caller ended a run.
  Cancelled = 9,
  /// A sequence has no snapshot of its fixed state where it needs one, or no
  /// more can be made.
  NoSnapshot = 10,
};

/// One line in lower case, without the program's name. It names the file, the
/// tensor or op, the found and the needed value and, if possible, the remedy.
class Error : public std::runtime_error {
public:
  /// Makes `what` printable and cuts it after 4000 bytes, so that callers need
  /// not escape names and texts of files.
  explicit Error(const std::string &what, ErrorKind kind = ErrorKind::General);

  ErrorKind kind() const { return errorKind; }

private:
  ErrorKind errorKind;
};

} // namespace qwen

#endif // QWEN_SUPPORT_ERROR_H
