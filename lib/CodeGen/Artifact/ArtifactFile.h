//===- ArtifactFile.h - The bytes of a compiled model -----------*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTFILE_H
#define QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTFILE_H

#include "qwen/ABI/TemporaryFile.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace qwen {

/// A file of known size that several threads write.
class ArtifactFile {
public:
  /// Gives `file` `size` bytes of zeros, which the disk then has for it. Throws
  /// Error, for a full disk with the bytes that are needed.
  ArtifactFile(const TemporaryFile &file, uint64_t size);

  /// Both throw Error and may be called from several threads at once.
  void write(uint64_t offset, std::span<const uint8_t> bytes) const;
  void read(uint64_t offset, std::span<uint8_t> bytes) const;

private:
  [[noreturn]] void fail(int error) const;
  /// Has the system's cache hold these bytes in huge pages where it can, by
  /// reading them before they are written: what is written piece by piece it
  /// holds in small pages, and so does every process that runs the file then,
  /// decoding slower by a sixth.
  void cacheInHugePages(uint64_t offset, uint64_t count) const;

  const TemporaryFile &file;
  const uint64_t size;
  static constexpr uint64_t kHugePage = uint64_t{2} << 20;
  mutable std::mutex cacheMutex;
  mutable std::vector<std::atomic<bool>> cachedPages;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTFILE_H
