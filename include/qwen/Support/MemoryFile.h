//===- MemoryFile.h - Files in memory ---------------------------*- C++ -*-===//
//
// For libraries and programs that read or write files by path.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_MEMORYFILE_H
#define QWEN_SUPPORT_MEMORYFILE_H

#include "qwen/Support/WritableFile.h"

#include <span>
#include <string>

namespace qwen {

/// A file in memory with a path for this process and its children. It
/// disappears with this process, however that ends. All functions throw Error
/// if the system fails.
class MemoryFile final : public WritableFile {
public:
  MemoryFile();
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  ~MemoryFile() override;

  int descriptor() const override { return fd; }
  std::string path() const override;
  std::string name() const override { return "a file in memory"; }
  /// Does nothing: the file keeps its path.
  void commit() override {}

  /// Appends `bytes`.
  void write(std::span<const char> bytes) const;

  /// The whole contents, including the bytes that other processes wrote.
  std::string contents() const;

private:
  int fd;
};

} // namespace qwen

#endif // QWEN_SUPPORT_MEMORYFILE_H
