//===- File.cpp - A file opened for reading -------------------------------===//

#include "artifact/File.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Numa.h"
#include "qwen/Support/OutputTarget.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace qwen;

size_t qwen::pageSize() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

File::File(std::string path) : filePath(std::move(path)) {
  const auto fail = [this](const char *why) {
    if (fd >= 0)
      close(fd);
    throw Error("cannot read " + filePath + ": " + why);
  };
  // A FIFO would block in open without O_NONBLOCK; regular files ignore it.
  fd = open(filePath.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail(strerror(errno));
  struct stat status;
  if (fstat(fd, &status) != 0)
    fail(strerror(errno));
  if (S_ISDIR(status.st_mode))
    fail("it is a directory");
  if (!S_ISREG(status.st_mode))
    fail("it is not a regular file");
  bytes = static_cast<uint64_t>(status.st_size);
  try {
    noteInput(filePath);
  } catch (...) {
    close(fd);
    throw;
  }
}

File::~File() {
  if (fd >= 0)
    close(fd);
}

File::File(File &&other) noexcept
    : filePath(std::move(other.filePath)), fd(std::exchange(other.fd, -1)),
      bytes(other.bytes) {}

void File::read(uint64_t offset, void *buffer, size_t count) const {
  auto *out = static_cast<uint8_t *>(buffer);
  while (count) {
    const ssize_t got = pread(fd, out, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      throw Error("cannot read " + filePath + ": " + strerror(errno));
    if (got == 0)
      throw Error(filePath + " is truncated: it ends at byte " +
                  std::to_string(offset));
    out += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<size_t>(got);
  }
}

Mapping::Mapping(Mapping &&other) noexcept
    : base(std::exchange(other.base, nullptr)),
      bytes(std::exchange(other.bytes, 0)),
      fileRange(std::move(other.fileRange)) {}

Mapping &Mapping::operator=(Mapping &&other) noexcept {
  std::swap(base, other.base);
  std::swap(bytes, other.bytes);
  std::swap(fileRange, other.fileRange);
  return *this;
}

Mapping::~Mapping() {
  if (bytes)
    munmap(base, bytes);
}

static size_t roundUp(size_t size, size_t align) {
  return (size + align - 1) / align * align;
}

/// The bytes of address space that are in use, or 0 if they are unknown. Takes
/// no memory, which a stream would.
static uint64_t addressSpaceInUse() {
  char text[32] = {};
  const int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (statm >= 0) {
    if (::read(statm, text, sizeof(text) - 1) < 0)
      text[0] = 0;
    ::close(statm);
  }
  return std::strtoull(text, nullptr, 10) * pageSize();
}

std::string qwen::addressSpaceLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "";
  return " (ulimit -v allows " + std::to_string(limit.rlim_cur) +
         " bytes of address space, and " + std::to_string(addressSpaceInUse()) +
         " are in use)";
}

Mapping Mapping::reserve(size_t size, size_t align, const std::string &what,
                         size_t offset) {
  size = roundUp(size, pageSize());
  if (align <= pageSize())
    align = 0;
  void *start = mmap(nullptr, size + align, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    throw Error("cannot get " + std::to_string(size) + " bytes for " + what +
                    ": " + strerror(errno) + addressSpaceLimit(),
                ErrorKind::NoMemory);
  auto *first = static_cast<uint8_t *>(start);
  if (!align)
    return Mapping(first, size);
  // Unmap the bytes before and after the aligned part.
  const size_t before =
      (offset - reinterpret_cast<uintptr_t>(first)) & (align - 1);
  if (before)
    munmap(first, before);
  if (align - before)
    munmap(first + before + size, align - before);
  return Mapping(first + before, size);
}

Mapping Mapping::memory(size_t size, const char *what) {
  Mapping result =
      reserve(size ? size : 1, size >= kHugePage ? kHugePage : 0, what);
  if (mprotect(result.base, result.bytes, PROT_READ | PROT_WRITE) != 0)
    throw Error("cannot get " + std::to_string(size) + " bytes for " + what +
                    ": " + strerror(errno) + addressSpaceLimit(),
                ErrorKind::NoMemory);
  return result;
}

Mapping Mapping::file(const File &file, uint64_t offset, size_t size,
                      size_t align) {
  Mapping result =
      reserve(size, align, "the mapping of " + file.path(), offset);
  if (mmap(result.base, size, PROT_READ, MAP_SHARED | MAP_FIXED,
           file.descriptor(), static_cast<off_t>(offset)) == MAP_FAILED)
    throw Error("cannot map " + file.path() + ": " + strerror(errno));
  result.setFile(file.path());
  return result;
}

void Mapping::useHugePages() const {
  // Only a hint, so a failure is ignored.
  madvise(base, bytes, MADV_HUGEPAGE);
}

void Mapping::preferNode(int node) const {
  qwen::preferNode(base, bytes, node);
}

void Mapping::lock(const std::string &what) const {
  if (mlock(base, bytes) == 0)
    return;
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  throw Error("cannot lock the " + std::to_string(bytes) + " bytes of " + what +
              " in memory: " + strerror(errno) + " (ulimit -l allows " +
              std::to_string(limit.rlim_cur) + " bytes)");
}

void Mapping::setFile(const std::string &path) {
  fileRange = std::make_unique<const MappedRange>(base, bytes, path);
}
