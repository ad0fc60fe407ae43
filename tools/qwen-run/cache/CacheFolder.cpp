//===- CacheFolder.cpp - The folder of compiled models --------------------===//

#include "cache/CacheFolder.h"

#include "JsonOutput.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::run;
namespace fs = std::filesystem;

static constexpr std::string_view kFileEnding = ".qwen",
                                  kRecordEnding = ".json";

std::optional<fs::path> qwen::run::cachePath() {
  // The standard wants relative values ignored.
  if (const char *cache = getenv("XDG_CACHE_HOME"); cache && *cache == '/')
    return fs::path(cache) / "qwen-run";
  if (const char *home = getenv("HOME"); home && *home)
    return fs::path(home) / ".cache" / "qwen-run";
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Who may use it
//===----------------------------------------------------------------------===//

static constexpr FolderTexts kTexts = {
    .why = "a compiled model is machine code",
    .user = "the cache",
    .chooseOwn = "set XDG_CACHE_HOME to a folder of your own",
    .chooseOther = "set XDG_CACHE_HOME",
    .chooseTarget = "set XDG_CACHE_HOME to the folder above its target"};

std::optional<CacheFolder> CacheFolder::open(const fs::path &path, bool make,
                                             std::string &reason) {
  if (std::optional<OwnFolder> opened =
          OwnFolder::open(path, make, kTexts, reason))
    return CacheFolder(std::move(*opened));
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

bool CacheFolder::has(const std::string &stem) const {
  const int file = folder.openFile(stem + std::string(kFileEnding), O_RDONLY);
  if (file >= 0)
    close(file);
  return file >= 0;
}

std::vector<CacheEntry> CacheFolder::entries() const {
  std::vector<CacheEntry> result;
  for (const std::string &name : folder.names()) {
    if (!name.ends_with(kFileEnding))
      continue;
    const int file = folder.openFile(name, O_RDONLY);
    // Another process has removed it.
    if (file < 0)
      continue;
    struct stat status;
    if (fstat(file, &status) == 0)
      result.push_back({name.substr(0, name.size() - kFileEnding.size()),
                        static_cast<uint64_t>(status.st_size), status.st_mtim});
    close(file);
  }
  std::ranges::sort(result, [](const CacheEntry &one, const CacheEntry &other) {
    return std::tie(one.lastUse.tv_sec, one.lastUse.tv_nsec, one.stem) <
           std::tie(other.lastUse.tv_sec, other.lastUse.tv_nsec, other.stem);
  });
  return result;
}

void CacheFolder::touch(const std::string &stem) const {
  utimensat(folder.descriptor(), (stem + std::string(kFileEnding)).c_str(),
            nullptr, AT_SYMLINK_NOFOLLOW);
}

std::optional<CacheRecord> CacheFolder::record(const std::string &stem) const {
  constexpr size_t kMostBytes = 65536;
  const int file = folder.openFile(stem + std::string(kRecordEnding), O_RDONLY);
  if (file < 0)
    return std::nullopt;
  std::string text(kMostBytes, 0);
  const ssize_t count = pread(file, text.data(), text.size(), 0);
  close(file);
  text.resize(count < 0 ? 0 : static_cast<size_t>(count));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  try {
    return CacheRecord{json.at("model"),   json.at("options"),
                       json.at("summary"), json.at("memory"),
                       json.at("token"),   json.at("boot")};
  } catch (const nlohmann::json::exception &) {
    return std::nullopt;
  }
}

void CacheFolder::writeRecord(const std::string &stem,
                              const CacheRecord &record) const {
  const std::string text = jsonObject({{"model", record.model},
                                       {"options", record.options},
                                       {"summary", record.summary},
                                       {"memory", record.memory},
                                       {"token", record.tokenBytes},
                                       {"boot", record.boot}})
                               .text +
                           "\n";
  // In place, because the file is also the lock.
  const int file =
      folder.openFile(stem + std::string(kRecordEnding), O_WRONLY | O_CREAT);
  int error = file < 0 ? errno : 0;
  if (!error && ftruncate(file, 0) != 0)
    error = errno;
  if (!error)
    error = writeAll(file, text.data(), text.size());
  if (file >= 0)
    close(file);
  if (error)
    throw Error(
        "cannot write " +
        part::file((path() / (stem + std::string(kRecordEnding))).string()) +
        ": " + part::found(std::strerror(error)));
}

//===----------------------------------------------------------------------===//
// Locks
//===----------------------------------------------------------------------===//

CacheLock::CacheLock(CacheLock &&other) noexcept
    : fd(std::exchange(other.fd, -1)) {}

CacheLock::~CacheLock() {
  if (fd >= 0)
    close(fd);
}

std::optional<CacheLock> CacheFolder::lock(const std::string &stem,
                                           bool wait) const {
  const std::string name = stem + std::string(kRecordEnding);
  while (true) {
    CacheLock lock(folder.openFile(name, O_RDWR | O_CREAT));
    const auto fail = [&] {
      throw Error("cannot lock " + part::file((path() / name).string()) + ": " +
                  part::found(std::strerror(errno)));
    };
    if (lock.descriptor() < 0)
      fail();
    while (flock(lock.descriptor(), LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
      if (errno == EWOULDBLOCK)
        return std::nullopt;
      if (errno != EINTR)
        fail();
    }
    // Who had the lock may have removed the file.
    struct stat status, now;
    if (fstat(lock.descriptor(), &status) == 0 &&
        fstatat(folder.descriptor(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) ==
            0 &&
        now.st_ino == status.st_ino)
      return lock;
  }
}

//===----------------------------------------------------------------------===//
// Removal
//===----------------------------------------------------------------------===//

void CacheFolder::removeTemporaries(const std::string &stem) const {
  for (const std::string &name : folder.names())
    if (name.starts_with(stem + std::string(kFileEnding) + ".tmp"))
      unlinkat(folder.descriptor(), name.c_str(), 0);
}

bool CacheFolder::remove(const std::string &stem) const {
  const std::optional<CacheLock> locked = lock(stem, false);
  if (!locked)
    return false;
  removeTemporaries(stem);
  unlinkat(folder.descriptor(), (stem + std::string(kFileEnding)).c_str(), 0);
  std::error_code ignored;
  // The layers of a calibration that was killed.
  fs::remove_all(path() / (stem + std::string(kFileEnding) + ".calibration"),
                 ignored);
  // Last, because it is the lock.
  unlinkat(folder.descriptor(), (stem + std::string(kRecordEnding)).c_str(), 0);
  return true;
}

void CacheFolder::removeRests() const {
  for (const std::string &name : folder.names())
    if (name.ends_with(kRecordEnding)) {
      const std::string stem =
          name.substr(0, name.size() - kRecordEnding.size());
      if (!has(stem))
        remove(stem);
    }
}

fs::space_info CacheFolder::disk() const {
  std::error_code error;
  const fs::space_info space = fs::space(path(), error);
  return error ? fs::space_info{0, 0, 0} : space;
}

std::vector<std::string> CacheFolder::makeRoom(const fs::space_info &disk,
                                               uint64_t needed, uint64_t most,
                                               bool dry) const {
  constexpr uint64_t kFreePart = 20;
  const std::vector<CacheEntry> all = entries();
  uint64_t bytes = 0, freed = 0;
  for (const CacheEntry &entry : all)
    bytes += entry.bytes;
  const uint64_t wanted =
      disk.capacity ? disk.capacity / kFreePart + needed : 0;
  std::vector<std::string> removed;
  for (const CacheEntry &entry : all) {
    if (bytes - freed <= most && disk.available + freed >= wanted)
      break;
    if (!dry && !remove(entry.stem))
      continue;
    freed += entry.bytes;
    removed.push_back(entry.stem);
  }
  return removed;
}
