//===- CacheFolder.h - The folder of compiled models ------------*- C++ -*-===//
//
// Which files it has, who may use them, and which go when room is needed
// (docs/decisions/0022-one-command.md). It knows no compiler.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_CACHE_CACHEFOLDER_H
#define QWEN_RUN_CACHE_CACHEFOLDER_H

#include "store/OwnFolder.h"

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qwen::run {

/// $XDG_CACHE_HOME/qwen-run, else ~/.cache/qwen-run; nothing if neither
/// variable is set.
std::optional<std::filesystem::path> cachePath();

/// What is known about a cached file, besides its name and size.
struct CacheRecord {
  /// The model as it was given, and the options of its compile.
  std::string model = {}, options = {};
  /// "q6_k for znver4".
  std::string summary = {};
  /// Bytes of memory that the model needs, and that a token of context needs.
  uint64_t memory = 0, tokenBytes = 0;
  /// The boot in which it was written; empty once the file was compared with
  /// its checksums in a later one.
  std::string boot = {};
};

/// A compiled file of the cache.
struct CacheEntry {
  /// Its name without ".qwen".
  std::string stem;
  uint64_t bytes;
  /// The time since 1970.
  timespec lastUse;
};

/// A lock of one name of the cache, until it is destroyed or this process and
/// the compiler that inherits `descriptor` have ended.
class CacheLock {
public:
  explicit CacheLock(int fd) : fd(fd) {}
  ~CacheLock();
  CacheLock(CacheLock &&other) noexcept;
  CacheLock &operator=(CacheLock &&) = delete;
  int descriptor() const { return fd; }

private:
  int fd;
};

/// The opened folder. All functions throw Error.
class CacheFolder {
public:
  /// Opens `path`, and makes it if it is missing and `make` is set. Nothing if
  /// it is missing, or, with the reason in `reason`, if it cannot be opened or
  /// made. Throws Error, which names it, if it belongs to another user, if
  /// others may write it, or if it is a link.
  static std::optional<CacheFolder> open(const std::filesystem::path &path,
                                         bool make, std::string &reason);

  const std::filesystem::path &path() const { return folder.path(); }
  std::filesystem::path fileOf(const std::string &stem) const {
    return path() / (stem + ".qwen");
  }
  /// Whether this process may make files in it.
  bool isWritable() const { return folder.isWritable(); }

  /// The compiled files, the least recently used first. Throws Error, which
  /// names the file, as `has`.
  std::vector<CacheEntry> entries() const;
  /// Whether there is a compiled file of that name. Throws Error, which names
  /// it, if it belongs to another user, if others may write it, or if it is a
  /// link.
  bool has(const std::string &stem) const;
  /// Sets the time of the last use to now, if that is possible.
  void touch(const std::string &stem) const;

  /// What is known about a file; nothing if that was lost.
  std::optional<CacheRecord> record(const std::string &stem) const;
  void writeRecord(const std::string &stem, const CacheRecord &record) const;

  /// Locks a name. Nothing if another process has it and `wait` is not set.
  std::optional<CacheLock> lock(const std::string &stem, bool wait) const;
  /// Removes what a dead compiler left of a name that the caller has locked.
  void removeTemporaries(const std::string &stem) const;
  /// Removes a file and all that belongs to it. False if another process
  /// compiles it.
  bool remove(const std::string &stem) const;
  /// Removes the names without a compiled file that nobody compiles.
  void removeRests() const;

  /// Bytes of the disk; zeros if the system does not say them.
  std::filesystem::space_info disk() const;
  /// Removes the least recently used files until all have at most `most` bytes
  /// and, beside `needed` bytes, 5% of `disk` are free, or none is left.
  /// Returns the names of the removed files. With `dry`, it removes nothing and
  /// returns the names of the files that it would remove.
  std::vector<std::string> makeRoom(const std::filesystem::space_info &disk,
                                    uint64_t needed, uint64_t most = UINT64_MAX,
                                    bool dry = false) const;

private:
  explicit CacheFolder(OwnFolder opened) : folder(std::move(opened)) {}

  OwnFolder folder;
};

} // namespace qwen::run

#endif // QWEN_RUN_CACHE_CACHEFOLDER_H
