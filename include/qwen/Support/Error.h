//===- Error.h - The exception of this project ------------------*- C++ -*-===//
//
// The one exception type of this project. Readers of files and the runtime
// throw it, mains catch it and print one line.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_ERROR_H
#define QWEN_SUPPORT_ERROR_H

#include <concepts>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

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

/// The subject of an error, for callers that show more than its line. A field
/// is empty if it is unknown or has no meaning for this error.
struct ErrorFields {
  std::string file = {};
  /// The tensor, key, op, target or option.
  std::string subject = {};
  std::string found = {};
  std::string needed = {};
};

/// A line, and the fields whose texts are its parts. Parts are joined by +; the
/// first text of a field counts.
class ErrorText {
public:
  // Text without a field.
  ErrorText(std::string text) : text(std::move(text)) {}
  ErrorText(std::string_view text) : text(text) {}
  ErrorText(const char *text) : text(text) {}
  ErrorText(std::string text, ErrorFields fields)
      : text(std::move(text)), parts(std::move(fields)) {}

  const std::string &line() const { return text; }
  const ErrorFields &fields() const { return parts; }

  friend ErrorText operator+(ErrorText left, const ErrorText &right);

private:
  std::string text;
  ErrorFields parts;
};

ErrorText operator+(ErrorText left, const ErrorText &right);

/// The parts of an ErrorText. All but `tensor` are the text of their field.
namespace part {
ErrorText file(const std::string &path);
/// tensor "NAME".
ErrorText tensor(const std::string &name);
ErrorText subject(const std::string &text);
ErrorText found(const std::string &text);
ErrorText needed(const std::string &text);
ErrorText found(std::integral auto number) {
  return found(std::to_string(number));
}
ErrorText needed(std::integral auto number) {
  return needed(std::to_string(number));
}
} // namespace part

/// One line in lower case, without the program's name. It names the file, the
/// tensor or op, the found and the needed value and, if possible, the remedy.
class Error : public std::runtime_error {
public:
  /// Makes the line and the fields of `text` printable and cuts them after 4000
  /// bytes, so that callers need not escape names and texts of files.
  explicit Error(const ErrorText &text, ErrorKind kind = ErrorKind::General);

  ErrorKind kind() const { return errorKind; }
  const ErrorFields &fields() const { return *errorFields; }

private:
  ErrorKind errorKind;
  /// Shared, because a copy of an exception must not throw.
  std::shared_ptr<const ErrorFields> errorFields;
};

} // namespace qwen

#endif // QWEN_SUPPORT_ERROR_H
