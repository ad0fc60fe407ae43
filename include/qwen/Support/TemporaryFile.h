//===- TemporaryFile.h - A file that is complete or absent ------*- C++ -*-===//
//
// The tools write to a temporary file and rename it when it is complete.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_TEMPORARYFILE_H
#define QWEN_SUPPORT_TEMPORARYFILE_H

#include "qwen/Support/WritableFile.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace qwen {

/// A new file in the folder of `target`, with a temporary name until commit.
/// The destructor and removeTemporaryFile remove it. Only one such file exists
/// at a time.
class TemporaryFile final : public WritableFile {
public:
  /// Makes an empty file. Throws Error if `target` cannot be written: its
  /// folder is missing or read-only, or it is not a regular file.
  explicit TemporaryFile(std::string target);
  ~TemporaryFile() override;
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;

  int descriptor() const override { return fd; }
  /// The temporary name.
  std::string path() const override { return temporaryPath; }
  /// The final name in quotes.
  std::string name() const override { return "'" + targetPath + "'"; }

  /// Closes the file and renames it to its final name. It replaces an existing
  /// file. Throws Error.
  void commit() override;

private:
  std::string targetPath, temporaryPath;
  int fd = -1;
};

/// Removes the TemporaryFile, if there is one. For code that ends the program
/// without destructors; a signal handler may call it.
void removeTemporaryFile();

/// Writes `size` bytes to a descriptor. Returns 0 or the errno of the failure.
int writeAll(int fd, const void *data, size_t size);

/// Writes `size` bytes at `offset`, like writeAll.
int writeAllAt(int fd, const void *data, size_t size, uint64_t offset);

} // namespace qwen

#endif // QWEN_SUPPORT_TEMPORARYFILE_H
