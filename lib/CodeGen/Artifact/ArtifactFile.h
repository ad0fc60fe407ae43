//===- ArtifactFile.h - The bytes of a compiled model -----------*- C++ -*-===//

#ifndef QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTFILE_H
#define QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTFILE_H

#include "qwen/Support/WritableFile.h"

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace qwen {

/// A file of known size for several writing threads.
class ArtifactFile {
public:
  /// Gives `file` `size` bytes of zeros and allocates them on the disk. Throws
  /// Error; the message about a full disk has the needed size.
  ArtifactFile(const WritableFile &file, uint64_t size);

  /// Several threads may call both at the same time. Both throw Error.
  void write(uint64_t offset, std::span<const uint8_t> bytes) const;
  void read(uint64_t offset, std::span<uint8_t> bytes) const;

private:
  [[noreturn]] void fail(int error) const;
  /// Reads these bytes before they are written, so that the system caches them
  /// in huge memory pages if it can. Bytes that are written without this are
  /// cached in small pages, which makes decoding a sixth slower.
  void cacheInHugePages(uint64_t offset, uint64_t count) const;

  const WritableFile &file;
  const uint64_t size;
  mutable std::vector<std::once_flag> cachedPages;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_ARTIFACT_ARTIFACTFILE_H
