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
#include <dirent.h>
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

/// Throws Error unless only this user can write what `status` describes.
static void requireOwn(const struct stat &status, const fs::path &path) {
  const uid_t user = geteuid();
  const std::string wayOut =
      " when a compiled model is machine code: remove it, or set "
      "XDG_CACHE_HOME to a folder of your own";
  if (status.st_uid != user)
    throw Error(part::file(path.string()) + " belongs to user " +
                part::found(status.st_uid) + " and not to " +
                part::needed(user) + wayOut);
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    throw Error(part::file(path.string()) + " may be written by other users" +
                wayOut);
}

[[noreturn]] static void refuseLink(const fs::path &path) {
  throw Error(part::file(path.string()) +
              " is a symbolic link, which the cache does not follow; set "
              "XDG_CACHE_HOME to the folder above its target");
}

/// Makes `path` and the folders above it. Returns 0 or an errno.
static int makeFolder(const fs::path &path) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error)
    return error.value();
  return mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST ? 0 : errno;
}

std::optional<CacheFolder> CacheFolder::open(const fs::path &path, bool make,
                                             std::string &reason) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const auto fail = [&](int error) {
    reason = path.string() + ": " + std::strerror(error);
    return std::nullopt;
  };
  int fd = ::open(path.c_str(), kFlags);
  if (fd < 0 && errno == ENOENT && make) {
    if (const int error = makeFolder(path))
      return fail(error);
    fd = ::open(path.c_str(), kFlags);
  }
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT && !make)
      return std::nullopt;
    std::error_code ignored;
    if (fs::is_symlink(path, ignored))
      refuseLink(path);
    if (error == ENOTDIR)
      throw Error(part::file(path.string()) +
                  " is no folder when the cache needs one; remove it, or set "
                  "XDG_CACHE_HOME");
    return fail(error);
  }
  CacheFolder folder(path, fd);
  struct stat status;
  if (fstat(fd, &status) != 0)
    return fail(errno);
  requireOwn(status, path);
  return folder;
}

CacheFolder::CacheFolder(CacheFolder &&other) noexcept
    : where(std::move(other.where)), fd(std::exchange(other.fd, -1)) {}

CacheFolder &CacheFolder::operator=(CacheFolder &&other) noexcept {
  std::swap(where, other.where);
  std::swap(fd, other.fd);
  return *this;
}

CacheFolder::~CacheFolder() {
  if (fd >= 0)
    close(fd);
}

bool CacheFolder::isWritable() const {
  return faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0;
}

int CacheFolder::openFile(const std::string &name, int flags) const {
  // A FIFO would block without O_NONBLOCK.
  const int file =
      openat(fd, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
             S_IRUSR | S_IWUSR);
  if (file < 0) {
    if (errno == ELOOP)
      refuseLink(where / name);
    return -1;
  }
  struct stat status;
  try {
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
      throw Error(part::file((where / name).string()) +
                  " is no regular file; remove it");
    requireOwn(status, where / name);
  } catch (...) {
    close(file);
    throw;
  }
  return file;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

std::vector<std::string> CacheFolder::names() const {
  std::vector<std::string> result;
  const int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = own < 0 ? nullptr : fdopendir(own);
  if (!stream)
    throw Error("cannot read " + part::file(where.string()) + ": " +
                part::found(std::strerror(errno)));
  // Only this thread has the stream.
  while (const dirent *entry = readdir(stream)) // NOLINT(concurrency-mt-unsafe)
    if (entry->d_name[0] != '.')
      result.emplace_back(entry->d_name);
  closedir(stream);
  return result;
}

bool CacheFolder::has(const std::string &stem) const {
  const int file = openFile(stem + std::string(kFileEnding), O_RDONLY);
  if (file >= 0)
    close(file);
  return file >= 0;
}

std::vector<CacheEntry> CacheFolder::entries() const {
  std::vector<CacheEntry> result;
  for (const std::string &name : names()) {
    if (!name.ends_with(kFileEnding))
      continue;
    const int file = openFile(name, O_RDONLY);
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
  utimensat(fd, (stem + std::string(kFileEnding)).c_str(), nullptr,
            AT_SYMLINK_NOFOLLOW);
}

std::optional<CacheRecord> CacheFolder::record(const std::string &stem) const {
  constexpr size_t kMostBytes = 65536;
  const int file = openFile(stem + std::string(kRecordEnding), O_RDONLY);
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
      openFile(stem + std::string(kRecordEnding), O_WRONLY | O_CREAT);
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
        part::file((where / (stem + std::string(kRecordEnding))).string()) +
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
    CacheLock lock(openFile(name, O_RDWR | O_CREAT));
    const auto fail = [&] {
      throw Error("cannot lock " + part::file((where / name).string()) + ": " +
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
        fstatat(fd, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        now.st_ino == status.st_ino)
      return lock;
  }
}

//===----------------------------------------------------------------------===//
// Removal
//===----------------------------------------------------------------------===//

void CacheFolder::removeTemporaries(const std::string &stem) const {
  for (const std::string &name : names())
    if (name.starts_with(stem + std::string(kFileEnding) + ".tmp"))
      unlinkat(fd, name.c_str(), 0);
}

bool CacheFolder::remove(const std::string &stem) const {
  const std::optional<CacheLock> locked = lock(stem, false);
  if (!locked)
    return false;
  removeTemporaries(stem);
  unlinkat(fd, (stem + std::string(kFileEnding)).c_str(), 0);
  std::error_code ignored;
  // The layers of a calibration that was killed.
  fs::remove_all(where / (stem + std::string(kFileEnding) + ".calibration"),
                 ignored);
  // Last, because it is the lock.
  unlinkat(fd, (stem + std::string(kRecordEnding)).c_str(), 0);
  return true;
}

void CacheFolder::removeRests() const {
  for (const std::string &name : names())
    if (name.ends_with(kRecordEnding)) {
      const std::string stem =
          name.substr(0, name.size() - kRecordEnding.size());
      if (!has(stem))
        remove(stem);
    }
}

fs::space_info CacheFolder::disk() const {
  std::error_code error;
  const fs::space_info space = fs::space(where, error);
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
