//===- OutputTarget.h - Where a tool writes ---------------------*- C++ -*-===//
//
// No output may replace a file that the same run reads. Whoever opens an input
// notes it here, and whoever writes asks here, so that no command has a list of
// its inputs.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_OUTPUTTARGET_H
#define QWEN_SUPPORT_OUTPUTTARGET_H

#include "qwen/Support/Error.h"

#include <string>

namespace qwen {

/// The error of an output that must not be written. It stays apart from errors
/// of inputs (throwInputError), although an input may be opened when it is
/// found.
class OutputError : public Error {
public:
  using Error::Error;
};

/// Notes that this process reads the file `path`. Throws OutputError if it is
/// the file of an OutputTarget.
void noteInput(const std::string &path);

/// Whether `path` and a noted input are one regular file: they have the same
/// device and inode, by whatever names and links.
bool isInput(const std::string &path);

/// The path of an output. While it exists, noteInput refuses its file.
class OutputTarget {
public:
  /// Throws OutputError if `path` is a folder or an input (isInput).
  explicit OutputTarget(std::string path);
  ~OutputTarget();
  OutputTarget(const OutputTarget &) = delete;
  OutputTarget &operator=(const OutputTarget &) = delete;

  const std::string &path() const { return target; }

  /// Opens what takes bytes only in order: a pipe, a device, or this process's
  /// standard output or error, also if that is a file. Returns -1 for a regular
  /// file and for a path where nothing is. Throws Error.
  int openStream() const;

private:
  const std::string target;
};

} // namespace qwen

#endif // QWEN_SUPPORT_OUTPUTTARGET_H
