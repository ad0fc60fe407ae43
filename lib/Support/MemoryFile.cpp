//===- MemoryFile.cpp - Files in memory -----------------------------------===//

#include "qwen/Support/MemoryFile.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace qwen;

[[noreturn]] static void failTo(const char *verb) {
  throw Error(std::string("cannot ") + verb +
              " a file in memory: " + std::strerror(errno));
}

MemoryFile::MemoryFile() : fd(memfd_create("qwen", MFD_CLOEXEC)) {
  if (fd < 0)
    failTo("make");
}

MemoryFile::~MemoryFile() { close(fd); }

std::string MemoryFile::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd);
}

void MemoryFile::write(std::span<const char> bytes) const {
  if (const int error = writeAll(fd, bytes.data(), bytes.size()))
    fail(error);
}

std::string MemoryFile::contents() const {
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0)
    failTo("read");
  std::string bytes(static_cast<size_t>(size), 0);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = pread(fd, bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(done));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      failTo("read");
    done += static_cast<size_t>(count);
  }
  return bytes;
}
