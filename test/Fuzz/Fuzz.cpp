//===- Fuzz.cpp - What every fuzz target promises -------------------------===//

#include "Fuzz.h"

#include <sanitizer/allocator_interface.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

using namespace qwen::fuzz;

void qwen::fuzz::fail(const std::string &what) {
  fprintf(stderr, "finding: %s\n", what.c_str());
  abort();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static bool counting = false;
static int64_t live = 0, most = 0;

static void onMalloc(const volatile void *, size_t size) {
  if (!counting)
    return;
  live += static_cast<int64_t>(size);
  if (live <= most)
    return;
  // The report may need memory too.
  counting = false;
  fail(std::to_string(live) + " bytes in use after an allocation of " +
       std::to_string(size) + " when at most " + std::to_string(most) +
       " are allowed");
}

static void onFree(const volatile void *pointer) {
  if (counting && pointer)
    live -= static_cast<int64_t>(
        __sanitizer_get_allocated_size(const_cast<void *>(pointer)));
}

MemoryLimit::MemoryLimit(size_t bytes) {
  static const int installed =
      __sanitizer_install_malloc_and_free_hooks(onMalloc, onFree);
  require(installed > 0, "no room for the hooks that count memory");
  live = 0;
  most = static_cast<int64_t>(bytes);
  counting = true;
}

MemoryLimit::~MemoryLimit() { counting = false; }

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

Folder::Folder() {
  std::string name =
      (std::filesystem::temp_directory_path() / "qwen-fuzz-XXXXXX").string();
  require(mkdtemp(name.data()), "no temporary folder");
  folder = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

void Folder::write(const char *name, std::string_view bytes) const {
  // The file is not truncated first: ext4 would write it to the disk, as a file
  // that replaces another.
  const int fd =
      open((folder / name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const auto size = static_cast<ssize_t>(bytes.size());
  require(fd >= 0 && ::write(fd, bytes.data(), bytes.size()) == size &&
              ftruncate(fd, size) == 0,
          "the input cannot be written");
  close(fd);
}

std::vector<std::string_view> qwen::fuzz::splitParts(std::string_view input,
                                                     size_t count) {
  constexpr char kEnd = '\x1e';
  std::vector<std::string_view> parts(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t end = i + 1 == count
                           ? input.size()
                           : std::min(input.find(kEnd), input.size());
    parts[i] = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  return parts;
}

std::vector<uint8_t> qwen::fuzz::copyOf(const uint8_t *data, size_t size) {
  std::vector<uint8_t> copy(data, data + size);
  copy.shrink_to_fit();
  return copy;
}
