//===- TemporaryFile.cpp - A file that is complete or absent --------------===//

#include "qwen/Support/TemporaryFile.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace qwen;
namespace fs = std::filesystem;

/// The path of the existing TemporaryFile, or null.
static std::atomic<const char *> currentPath;

void qwen::removeTemporaryFile() {
  if (const char *path = currentPath)
    unlink(path);
}

int qwen::openUnnamedFile() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) {
    errno = error.value();
    return -1;
  }
  std::string path = (folder / "qwen-XXXXXX").string();
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0)
    unlink(path.c_str());
  return fd;
}

//===----------------------------------------------------------------------===//
// Names of temporary files
//===----------------------------------------------------------------------===//

/// Stands between the name of the target and a number: the first free one from
/// the number of the process on.
static constexpr char kBeforeNumber[] = ".tmp";

/// Locks an open file, and waits for the lock if `wait` is set. A filesystem
/// without locks gives none.
static bool lockFile(int fd, bool wait) {
  while (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) != 0)
    if (errno != EINTR)
      return false;
  return true;
}

bool qwen::hasName(int fd, const std::string &path) {
  struct stat open, named;
  return fstat(fd, &open) == 0 && lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

/// Removes a temporary file of this user that no process locks.
static void removeIfDead(const std::string &path) {
  const int fd =
      open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return;
  struct stat status;
  // The name is compared behind the lock: its owner may have renamed the file.
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_uid == geteuid() && lockFile(fd, false) && hasName(fd, path))
    unlink(path.c_str());
  close(fd);
}

/// Removes what killed processes left of `target`.
static void removeDead(const std::string &target) {
  const fs::path path = target;
  const std::string start = path.filename().string() + kBeforeNumber;
  std::error_code ignored;
  const fs::path folder = path.parent_path();
  for (const fs::directory_entry &entry :
       fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > start.size() && name.starts_with(start) &&
        name.find_first_not_of("0123456789", start.size()) == name.npos &&
        !isInput(entry.path().string()))
      removeIfDead(entry.path().string());
  }
}

//===----------------------------------------------------------------------===//
// TemporaryFile
//===----------------------------------------------------------------------===//

TemporaryFile::TemporaryFile(const std::string &path)
    : targetPath(path), target(path), stream(target->openStream()) {
  if (isStream())
    makeUnnamed();
  else
    makeNamed();
}

void TemporaryFile::makeUnnamed() {
  fd = openUnnamedFile();
  if (fd < 0) {
    const int error = errno;
    close(stream);
    throw Error("cannot make a temporary file for " + part::file(name()) +
                ": " + part::found(std::strerror(error)) +
                "; set TMPDIR to a folder of your own");
  }
  temporaryPath =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd);
}

void TemporaryFile::makeNamed() {
  removeDead(targetPath);
  while (!makeLocked())
    ;
}

bool TemporaryFile::makeLocked() {
  // Signal handlers know the path as soon as the file exists.
  const SignalsBlocked blocked;
  for (auto number = static_cast<uint64_t>(getpid());; ++number) {
    temporaryPath = targetPath + kBeforeNumber + std::to_string(number);
    fd = open(temporaryPath.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
              0666);
    if (fd >= 0)
      break;
    if (errno != EEXIST)
      fail(errno);
  }
  currentPath = temporaryPath.c_str();
  lockFile(fd, true);
  if (hasName(fd, temporaryPath))
    return true;
  currentPath = nullptr;
  close(std::exchange(fd, -1));
  return false;
}

TemporaryFile::~TemporaryFile() {
  if (fd >= 0)
    close(fd);
  if (stream >= 0)
    close(stream);
  removeTemporaryFile();
  currentPath = nullptr;
}

void TemporaryFile::copyToStream() {
  constexpr size_t kBlockBytes = size_t{1} << 20;
  std::vector<char> block(kBlockBytes);
  for (off_t offset = 0;;) {
    const ssize_t count = pread(fd, block.data(), block.size(), offset);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      fail(errno);
    if (count == 0)
      return;
    if (const int error =
            writeAll(stream, block.data(), static_cast<size_t>(count)))
      fail(error);
    offset += count;
  }
}

void TemporaryFile::commit() {
  if (isStream()) {
    copyToStream();
    if (close(std::exchange(stream, -1)) != 0)
      fail(errno);
    return target.reset();
  }
  // The file keeps its lock as long as it has its temporary name.
  const int locked = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const bool isClosed = locked >= 0 && close(std::exchange(fd, -1)) == 0;
  const bool isNamed =
      isClosed && std::rename(temporaryPath.c_str(), targetPath.c_str()) == 0;
  const int error = errno;
  if (locked >= 0)
    close(locked);
  if (!isNamed)
    fail(error);
  currentPath = nullptr;
  target.reset();
}

void WritableFile::fail(int error) const {
  throw Error("cannot write " + part::file(name()) + ": " +
              part::found(std::strerror(error)));
}

int qwen::writeAll(int fd, const void *data, size_t size) {
  const auto *bytes = static_cast<const char *>(data);
  while (size) {
    const ssize_t written = write(fd, bytes, size);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return errno;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return 0;
}

int qwen::writeAllAt(int fd, const void *data, size_t size, uint64_t offset) {
  const auto *bytes = static_cast<const char *>(data);
  while (size) {
    const ssize_t written = pwrite(fd, bytes, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return written < 0 ? errno : EIO;
    bytes += written;
    size -= static_cast<size_t>(written);
    offset += static_cast<uint64_t>(written);
  }
  return 0;
}
