//===- TemporaryFile.h - A file that is complete or absent ------*- C++ -*-===//
//
// The tools write to a temporary file and rename it when it is complete. Pipes
// and devices cannot be renamed to: they get the bytes of an unnamed file.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_TEMPORARYFILE_H
#define QWEN_SUPPORT_TEMPORARYFILE_H

#include "qwen/Support/OutputTarget.h"
#include "qwen/Support/WritableFile.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace qwen {

/// A new file in the folder of `target`, with a temporary name until commit.
/// The destructor and removeTemporaryFile remove it. What killed processes left
/// of the same target goes, too: each holds a lock of its file while it lives.
/// Only one such file exists at a time.
class TemporaryFile final : public WritableFile {
public:
  /// Makes an empty file. Throws Error if `target` cannot be written: its
  /// folder is missing or read-only, or OutputTarget refuses it.
  explicit TemporaryFile(const std::string &target);
  ~TemporaryFile() override;
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;

  int descriptor() const override { return fd; }
  /// The temporary name.
  std::string path() const override { return temporaryPath; }
  /// The final name in quotes.
  std::string name() const override { return "'" + targetPath + "'"; }
  /// Whether the target is a pipe or a device.
  bool isStream() const { return stream >= 0; }

  /// Closes the file and renames it to its final name. It replaces an existing
  /// file. A pipe or a device gets its bytes. Throws Error.
  void commit() override;

private:
  void makeNamed();
  void makeUnnamed();
  /// Makes a file with a new name and locks it. Returns false if another
  /// process has removed it before the lock.
  bool makeLocked();
  /// Writes all bytes to the pipe or device.
  void copyToStream();

  const std::string targetPath;
  std::optional<OutputTarget> target;
  std::string temporaryPath;
  int fd = -1, stream = -1;
};

/// A file without a name in the folder for temporary files ($TMPDIR), which
/// disappears when its descriptor is closed. Returns that, or -1 with errno.
int openUnnamedFile();

/// Removes the TemporaryFile, if there is one. For code that ends the program
/// without destructors; a signal handler may call it.
void removeTemporaryFile();

/// Whether `path` names the open file. A file that is locked may have lost its
/// name before the lock.
bool hasName(int fd, const std::string &path);

/// Writes `size` bytes to a descriptor. Returns 0 or the errno of the failure.
int writeAll(int fd, const void *data, size_t size);

/// Writes `size` bytes at `offset`, like writeAll.
int writeAllAt(int fd, const void *data, size_t size, uint64_t offset);

} // namespace qwen

#endif // QWEN_SUPPORT_TEMPORARYFILE_H
