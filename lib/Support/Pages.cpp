//===- Pages.cpp - Memory for large arrays --------------------------------===//

#include "qwen/Support/Pages.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace qwen;

Pages::Pages(uint64_t bytes, Place place, const std::string &name)
    : base(MAP_FAILED), size(bytes) {
  int fd = -1, error = 0, flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (place == Place::TemporaryFile) {
    fd = openUnnamedFile();
    // A write to a hole would be a fault where the disk is full.
    error = fd < 0 ? errno : posix_fallocate(fd, 0, static_cast<off_t>(size));
    flags = MAP_SHARED;
  }
  if (error == 0) {
    base = mmap(nullptr, std::max<uint64_t>(size, 1), PROT_READ | PROT_WRITE,
                flags, fd, 0);
    error = base == MAP_FAILED ? errno : 0;
  }
  if (fd >= 0)
    close(fd);
  if (error != 0)
    throw Error(name + " needs " + std::to_string(size) +
                " bytes: " + std::strerror(error));
}

Pages::~Pages() {
  if (base != nullptr)
    munmap(base, std::max<uint64_t>(size, 1));
}
