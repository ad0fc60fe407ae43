//===- ScratchFolder.h - A place for a compile of one run -------*- C++ -*-===//

#ifndef QWEN_RUN_CACHE_SCRATCHFOLDER_H
#define QWEN_RUN_CACHE_SCRATCHFOLDER_H

#include <filesystem>

namespace qwen::run {

/// A new folder of this user alone in the folder for temporary files. The
/// destructor removes it with its files. It is locked meanwhile, and the next
/// one removes those that killed processes left.
class ScratchFolder {
public:
  /// Throws Error.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder &) = delete;
  ScratchFolder &operator=(const ScratchFolder &) = delete;

  const std::filesystem::path &path() const { return where; }
  /// $TMPDIR, else /tmp.
  static std::filesystem::path parent();

private:
  std::filesystem::path where;
  int fd = -1;
};

} // namespace qwen::run

#endif // QWEN_RUN_CACHE_SCRATCHFOLDER_H
