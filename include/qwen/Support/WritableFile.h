//===- WritableFile.h - A file that is being written ------------*- C++ -*-===//

#ifndef QWEN_SUPPORT_WRITABLEFILE_H
#define QWEN_SUPPORT_WRITABLEFILE_H

#include <string>

namespace qwen {

/// A file on disk (TemporaryFile) or in memory (MemoryFile).
class WritableFile {
public:
  virtual ~WritableFile() = default;

  /// Open for reading and writing.
  virtual int descriptor() const = 0;
  /// Where this process and its children can read it before commit.
  virtual std::string path() const = 0;
  /// What errors call it.
  virtual std::string name() const = 0;
  /// Ends the writing: a file on disk gets its name. Throws Error.
  virtual void commit() = 0;

  /// Throws the Error of a write that failed with `error`, an errno.
  [[noreturn]] void fail(int error) const;
};

} // namespace qwen

#endif // QWEN_SUPPORT_WRITABLEFILE_H
