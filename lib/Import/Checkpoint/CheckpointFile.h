//===- CheckpointFile.h - Opens the files of a checkpoint -------*- C++ -*-===//
//
// All readers open files here, so that whatever stands in the place of a file
// is refused alike.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_IMPORT_CHECKPOINT_CHECKPOINTFILE_H
#define QWEN_LIB_IMPORT_CHECKPOINT_CHECKPOINTFILE_H

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

namespace qwen {

/// A regular file that is open for reading.
class CheckpointFile {
public:
  /// Opens `path`. Returns nullopt if there is no such file. Throws Error for
  /// anything else in its place: a symbolic link that leads nowhere, a folder,
  /// a pipe, a file without read permission, a pointer of Git LFS.
  static std::optional<CheckpointFile> open(const std::filesystem::path &path);

  CheckpointFile(CheckpointFile &&other) noexcept;
  CheckpointFile &operator=(CheckpointFile &&) = delete;
  ~CheckpointFile();

  uint64_t size() const { return bytes; }
  int descriptor() const { return fd; }

  /// Reads the first `count` bytes to `to`. Throws Error if the file cannot be
  /// read or has become shorter.
  void read(char *to, size_t count) const;

private:
  CheckpointFile(std::filesystem::path path, int fd)
      : path(std::move(path)), fd(fd) {}
  void refusePointer() const;

  std::filesystem::path path;
  int fd;
  uint64_t bytes = 0;
};

/// Whether there is anything at `path`. Throws Error for a symbolic link that
/// leads nowhere, and if `path` cannot be looked up.
bool isThere(const std::filesystem::path &path);

} // namespace qwen

#endif // QWEN_LIB_IMPORT_CHECKPOINT_CHECKPOINTFILE_H
