//===- File.h - A file opened for reading -----------------------*- C++ -*-===//
//
// Owners of a file descriptor and of a range of mapped memory.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ARTIFACT_FILE_H
#define QWEN_RUNTIME_ARTIFACT_FILE_H

#include "qwen/Support/Process.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace qwen {

/// A regular file that is open for reading.
class File {
public:
  /// Throws Error if the file is missing, unreadable or not a regular file.
  explicit File(std::string path);
  ~File();
  File(File &&other) noexcept;
  File(const File &) = delete;
  File &operator=(const File &) = delete;

  const std::string &path() const { return filePath; }
  int descriptor() const { return fd; }
  /// Size of the file when it was opened.
  uint64_t size() const { return bytes; }

  /// Reads `count` bytes at `offset`. Throws Error if the file has fewer.
  void read(uint64_t offset, void *buffer, size_t count) const;

private:
  std::string filePath;
  int fd = -1;
  uint64_t bytes = 0;
};

/// A range of address space, unmapped on destruction.
class Mapping {
public:
  Mapping() = default;
  Mapping(Mapping &&other) noexcept;
  Mapping &operator=(Mapping &&other) noexcept;
  Mapping(const Mapping &) = delete;
  ~Mapping();

  /// Reserves `size` bytes without access at `offset` (a multiple of the memory
  /// page) behind a multiple of `align`, a power of two and a multiple of the
  /// memory page. Throws Error if there is no room; `what` names the bytes in
  /// its text.
  static Mapping reserve(size_t size, size_t align, const std::string &what,
                         size_t offset = 0);

  /// Zeroed memory for reading and writing, at a multiple of 2 MiB if it is
  /// larger than that. The system provides each memory page at its first use.
  /// `what` as for reserve.
  static Mapping memory(size_t size, const char *what);

  /// Maps `size` bytes of `file` at `offset` (a multiple of the memory page)
  /// for reading, shared. Multiples of `align` in the file are multiples of it
  /// in memory.
  static Mapping file(const File &file, uint64_t offset, size_t size,
                      size_t align);

  /// Asks the system for huge memory pages, which save translations of
  /// addresses. Has no effect where the system has none.
  void useHugePages() const;

  /// Asks the system for memory of a NUMA node at the first use of each memory
  /// page. Another node gives what this one has not.
  void preferNode(int node) const;

  /// Locks this memory. Throws Error, which says that it is `what`, if the
  /// system does not allow it.
  void lock(const std::string &what) const;

  /// Registers this memory as a mapping of the file `path` (MappedRange).
  void setFile(const std::string &path);

  uint8_t *data() const { return base; }
  size_t size() const { return bytes; }

private:
  Mapping(uint8_t *base, size_t bytes) : base(base), bytes(bytes) {}

  uint8_t *base = nullptr;
  size_t bytes = 0;
  std::unique_ptr<const MappedRange> fileRange;
};

/// Size of a memory page in bytes.
size_t pageSize();

/// For messages about memory: the limit of the process's address space and its
/// use. Empty without a limit.
std::string addressSpaceLimit();

} // namespace qwen

#endif // QWEN_RUNTIME_ARTIFACT_FILE_H
