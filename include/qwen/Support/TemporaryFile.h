//===- TemporaryFile.h - A file that is complete or absent ------*- C++ -*-===//
//
// The tools write to a temporary file and rename it when it is complete.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_TEMPORARYFILE_H
#define QWEN_SUPPORT_TEMPORARYFILE_H

#include <cstddef>
#include <string>

namespace qwen {

/// A new file in the folder of `target`, with a temporary name until commit.
/// The destructor and removeTemporaryFile remove it. Only one such file exists
/// at a time.
class TemporaryFile {
public:
  /// Makes an empty file. Throws Error if `target` cannot be written: its
  /// folder is missing or read-only, or it is not a regular file.
  explicit TemporaryFile(std::string target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;

  const std::string &target() const { return targetPath; }
  /// The temporary name.
  const std::string &path() const { return temporaryPath; }
  /// Open for reading and writing.
  int descriptor() const { return fd; }

  /// Closes the file and renames it to `target`, which replaces an existing
  /// file. Throws Error.
  void commit();

  /// Throws the Error of a write that failed with `error`, an errno.
  [[noreturn]] void fail(int error) const;

private:
  std::string targetPath, temporaryPath;
  int fd = -1;
};

/// Removes the TemporaryFile, if there is one. For code that ends the program
/// without destructors; a signal handler may call it.
void removeTemporaryFile();

/// Writes `size` bytes to a descriptor. Returns 0 or the errno of the failure.
int writeAll(int fd, const void *data, size_t size);

} // namespace qwen

#endif // QWEN_SUPPORT_TEMPORARYFILE_H
