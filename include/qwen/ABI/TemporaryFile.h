//===- TemporaryFile.h - A file that is whole or not there ------*- C++ -*-===//
//
// What the tools write: a file has its name only once it is whole.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_TEMPORARYFILE_H
#define QWEN_ABI_TEMPORARYFILE_H

#include <cstddef>
#include <string>

namespace qwen {

/// A new file beside `target` that takes this name once it is whole. Until then
/// it has a name of its own. The destructor removes it, and so does
/// removeTemporaryFile. There is one such file at a time.
class TemporaryFile {
public:
  /// Makes the file, empty. Throws Error where `target` cannot be written: its
  /// folder is missing or read-only, or it names something other than a
  /// regular file.
  explicit TemporaryFile(std::string target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;

  const std::string &target() const { return targetPath; }
  /// Where the file is until it has its name.
  const std::string &path() const { return temporaryPath; }
  /// Open for reading and writing.
  int descriptor() const { return fd; }

  /// Closes the file and gives it its name, in place of any file that has it.
  /// Throws Error.
  void commit();

  /// Throws the Error of a write that failed with `error`, an errno.
  [[noreturn]] void fail(int error) const;

private:
  std::string targetPath, temporaryPath;
  int fd = -1;
};

/// Removes the TemporaryFile that there is, if any. For whatever ends the
/// program without destructors: a handler of a signal may call it.
void removeTemporaryFile();

/// Writes `size` bytes to a descriptor. Returns 0 or the errno of the failure.
int writeAll(int fd, const void *data, size_t size);

} // namespace qwen

#endif // QWEN_ABI_TEMPORARYFILE_H
