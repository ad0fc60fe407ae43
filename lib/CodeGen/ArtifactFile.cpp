//===- ArtifactFile.cpp - A file that is whole or not there ---------------===//

#include "ArtifactFile.h"

#include "qwen/ABI/Error.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace qwen;

//===----------------------------------------------------------------------===//
// The temporary file and signals
//===----------------------------------------------------------------------===//

static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

/// Name of the temporary file, for the signal handler; empty for none.
static char temporaryName[4096];
/// What the signals did before, and SIGXFSZ.
static struct sigaction oldActions[std::size(kSignals)], oldFileSize;

/// Removes the file, then dies of the signal.
static void removeAndDie(int signal) {
  if (temporaryName[0])
    unlink(temporaryName);
  // The handler was reset on entry; the signal arrives once it returns.
  raise(signal);
}

static void installHandlers() {
  struct sigaction action = {};
  action.sa_handler = removeAndDie;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &oldActions[i]);
    // Under nohup, and in the background of a script, signals stay ignored.
    if (oldActions[i].sa_handler != SIG_IGN)
      sigaction(kSignals[i], &action, nullptr);
  }
  // A limit on the size of files is an error like a full disk.
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &oldFileSize);
}

static void removeHandlers() {
  for (size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &oldActions[i], nullptr);
  sigaction(SIGXFSZ, &oldFileSize, nullptr);
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

void ArtifactFile::fail(const std::string &what, int error) const {
  std::string message =
      "cannot " + what + " '" + path + "': " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    message = "no space left for '" + path + "': " + std::to_string(size) +
              " bytes are needed (" + std::strerror(error) + ")";
  throw Error(message);
}

ArtifactFile::ArtifactFile(const std::filesystem::path &target, uint64_t bytes)
    : path(target.string()), size(bytes), cachedPages(bytes / kHugePage + 1) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw Error("cannot write '" + path + "': it is not a regular file");
  const std::string name = path + ".tmp" + std::to_string(getpid());
  if (name.size() >= sizeof temporaryName)
    throw Error("cannot write '" + path + "': its name is too long");
  // What a killed process of the same number has left.
  unlink(name.c_str());
  // The signals' handler knows the name before the file is there.
  std::memcpy(temporaryName, name.c_str(), name.size() + 1);
  installHandlers();
  descriptor = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  int error = descriptor < 0 ? errno : 0;
  if (error == 0) {
    do
      error = posix_fallocate(descriptor, 0, static_cast<off_t>(size));
    while (error == EINTR);
  }
  if (error == 0)
    return;
  remove();
  fail("write", error);
}

ArtifactFile::~ArtifactFile() { remove(); }

void ArtifactFile::remove() {
  if (descriptor >= 0)
    close(descriptor);
  descriptor = -1;
  if (temporaryName[0]) {
    unlink(temporaryName);
    temporaryName[0] = 0;
  }
  removeHandlers();
}

void ArtifactFile::cacheInHugePages(uint64_t offset, uint64_t count) const {
  for (uint64_t page = offset / kHugePage; page * kHugePage < offset + count;
       ++page) {
    std::atomic<bool> &cached = cachedPages[page];
    if (cached.load(std::memory_order_acquire))
      continue;
    const std::lock_guard lock(cacheMutex);
    if (cached.load(std::memory_order_relaxed))
      continue;
    void *map = mmap(nullptr, kHugePage, PROT_READ, MAP_SHARED, descriptor,
                     static_cast<off_t>(page * kHugePage));
    if (map != MAP_FAILED) {
      if (madvise(map, kHugePage, MADV_HUGEPAGE) == 0)
        madvise(map, kHugePage, MADV_POPULATE_READ);
      munmap(map, kHugePage);
    }
    cached.store(true, std::memory_order_release);
  }
}

void ArtifactFile::write(uint64_t offset,
                         std::span<const uint8_t> bytes) const {
  cacheInHugePages(offset, bytes.size());
  while (!bytes.empty()) {
    const ssize_t count = pwrite(descriptor, bytes.data(), bytes.size(),
                                 static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      fail("write", count < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void ArtifactFile::read(uint64_t offset, std::span<uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pread(descriptor, bytes.data(), bytes.size(),
                                static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      fail("read back", count < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

std::string ArtifactFile::temporaryPath() const { return temporaryName; }

void ArtifactFile::commit() {
  const int result = close(descriptor);
  descriptor = -1;
  if (result != 0)
    fail("write", errno);
  if (rename(temporaryName, path.c_str()) != 0)
    fail("write", errno);
  temporaryName[0] = 0;
}
