//===- MemoryFile.h - Files in memory ---------------------------*- C++ -*-===//
//
// For libraries and programs that read or write files by path.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_SUPPORT_MEMORYFILE_H
#define QWEN_SUPPORT_MEMORYFILE_H

#include "qwen/Support/Error.h"

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace qwen {

/// A file in memory with a path for this process and its children. It
/// disappears with this process, however that ends. All functions throw Error
/// if the system fails.
class MemoryFile {
public:
  MemoryFile() : descriptor(memfd_create("qwen", MFD_CLOEXEC)) {
    if (descriptor < 0)
      fail("made");
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  ~MemoryFile() { close(descriptor); }

  std::string path() const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" +
           std::to_string(descriptor);
  }

  /// Appends `bytes`.
  void write(std::span<const char> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR)
        continue;
      if (count <= 0)
        fail("written");
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }

  /// The whole contents, including the bytes that other processes wrote.
  std::string contents() const {
    const off_t size = lseek(descriptor, 0, SEEK_END);
    if (size < 0)
      fail("read");
    std::string bytes(static_cast<size_t>(size), 0);
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t count =
          pread(descriptor, bytes.data() + done, bytes.size() - done,
                static_cast<off_t>(done));
      if (count < 0 && errno == EINTR)
        continue;
      if (count <= 0)
        fail("read");
      done += static_cast<size_t>(count);
    }
    return bytes;
  }

private:
  [[noreturn]] static void fail(const char *what) {
    throw Error(std::string("a file in memory cannot be ") + what + ": " +
                std::strerror(errno));
  }

  int descriptor;
};

} // namespace qwen

#endif // QWEN_SUPPORT_MEMORYFILE_H
