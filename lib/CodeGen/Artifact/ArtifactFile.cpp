//===- ArtifactFile.cpp - The bytes of a compiled model -------------------===//

#include "ArtifactFile.h"

#include "qwen/ABI/ArtifactFormat.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace qwen;

ArtifactFile::ArtifactFile(const WritableFile &file, uint64_t size)
    : file(file), size(size), cachedPages(size / kHugePage + 1) {
  if (ftruncate(file.descriptor(), 0) != 0)
    fail(errno);
  int error = 0;
  do
    error = posix_fallocate(file.descriptor(), 0, static_cast<off_t>(size));
  while (error == EINTR);
  if (error != 0)
    fail(error);
}

void ArtifactFile::fail(int error) const {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    throw Error("no space left for " + part::file(file.name()) + ": " +
                part::needed(size) + " bytes are needed (" +
                std::strerror(error) + ")");
  file.fail(error);
}

void ArtifactFile::cacheInHugePages(uint64_t offset, uint64_t count) const {
  const auto cache = [&](uint64_t page) {
    void *map = mmap(nullptr, kHugePage, PROT_READ, MAP_SHARED,
                     file.descriptor(), static_cast<off_t>(page * kHugePage));
    if (map == MAP_FAILED)
      return;
    if (madvise(map, kHugePage, MADV_HUGEPAGE) == 0)
      madvise(map, kHugePage, MADV_POPULATE_READ);
    munmap(map, kHugePage);
  };
  for (uint64_t page = offset / kHugePage; page * kHugePage < offset + count;
       ++page)
    std::call_once(cachedPages[page], cache, page);
}

void ArtifactFile::write(uint64_t offset,
                         std::span<const uint8_t> bytes) const {
  cacheInHugePages(offset, bytes.size());
  if (const int error =
          writeAllAt(file.descriptor(), bytes.data(), bytes.size(), offset))
    fail(error);
}

void ArtifactFile::read(uint64_t offset, std::span<uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pread(file.descriptor(), bytes.data(), bytes.size(),
                                static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      fail(count < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}
