//===- TemporaryFile.cpp - A file that is complete or absent --------------===//

#include "qwen/Support/TemporaryFile.h"

#include "qwen/Support/Error.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace qwen;

/// The path of the existing TemporaryFile, or null.
static std::atomic<const char *> currentPath;

void qwen::removeTemporaryFile() {
  if (const char *path = currentPath)
    unlink(path);
}

TemporaryFile::TemporaryFile(std::string target)
    : targetPath(std::move(target)),
      temporaryPath(targetPath + ".tmp" + std::to_string(getpid())) {
  struct stat status;
  if (stat(targetPath.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode))
      throw Error("cannot write '" + targetPath +
                  "': it is not a regular file");
  } else if (errno != ENOENT || targetPath.empty()) {
    fail(errno);
  }
  // A killed process with the same number may have left the file.
  unlink(temporaryPath.c_str());
  // Signal handlers know the path before the file exists.
  currentPath = temporaryPath.c_str();
  fd = open(temporaryPath.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    const int error = errno;
    currentPath = nullptr;
    fail(error);
  }
}

TemporaryFile::~TemporaryFile() {
  if (fd >= 0)
    close(fd);
  removeTemporaryFile();
  currentPath = nullptr;
}

void TemporaryFile::commit() {
  if (close(std::exchange(fd, -1)) != 0)
    fail(errno);
  if (std::rename(temporaryPath.c_str(), targetPath.c_str()) != 0)
    fail(errno);
  currentPath = nullptr;
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
