//===- ArtifactFile.h - A file that is whole or not there -------*- C++ -*-===//

#ifndef QWEN_CODEGEN_ARTIFACTFILE_H
#define QWEN_CODEGEN_ARTIFACTFILE_H

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace qwen {

/// A new file beside `path` that takes this name once it is whole. Until then
/// it has a name of its own, under which it is removed by the destructor and
/// on SIGINT, SIGTERM and SIGHUP. There is one such file at a time.
class ArtifactFile {
public:
  /// Makes the file with `size` bytes of zeros, which the disk then has for
  /// it. Throws Error, for a full disk with the bytes that are needed.
  ArtifactFile(const std::filesystem::path &path, uint64_t size);
  ArtifactFile(const ArtifactFile &) = delete;
  ArtifactFile &operator=(const ArtifactFile &) = delete;
  ~ArtifactFile();

  /// Both throw Error and may be called from several threads at once.
  void write(uint64_t offset, std::span<const uint8_t> bytes) const;
  void read(uint64_t offset, std::span<uint8_t> bytes) const;

  /// Where the file is until it has its name.
  std::string temporaryPath() const;

  /// Gives the file its name.
  void commit();

private:
  /// Removes what has no name yet, and the handlers of signals.
  void remove();
  [[noreturn]] void fail(const std::string &what, int error) const;
  /// Has the system's cache hold these bytes in huge pages where it can, by
  /// reading them before they are written: what is written piece by piece it
  /// holds in small pages, and so does every process that runs the file then,
  /// decoding slower by a sixth.
  void cacheInHugePages(uint64_t offset, uint64_t count) const;

  std::string path;
  uint64_t size;
  int descriptor = -1;
  static constexpr uint64_t kHugePage = uint64_t{2} << 20;
  mutable std::mutex cacheMutex;
  mutable std::vector<std::atomic<bool>> cachedPages;
};

} // namespace qwen

#endif // QWEN_CODEGEN_ARTIFACTFILE_H
