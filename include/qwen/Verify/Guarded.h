//===- Guarded.h - Memory before an inaccessible page -----------*- C++ -*-===//

#ifndef QWEN_VERIFY_GUARDED_H
#define QWEN_VERIFY_GUARDED_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace qwen {

/// An array that ends at an inaccessible memory page, so that an access past
/// the end raises SIGSEGV. The bytes before the array hold a pattern that must
/// not change.
template <typename T> class Guarded {
public:
  explicit Guarded(int64_t count, T value = T())
      : count(static_cast<size_t>(count)) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = this->count * sizeof(T);
    size = (bytes + kFront + page - 1) / page * page;
    void *memory = mmap(nullptr, size + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED ||
        mprotect(static_cast<char *>(memory) + size, page, PROT_NONE) != 0)
      throw std::bad_alloc();
    base = static_cast<unsigned char *>(memory);
    mapped = size + page;
    first = reinterpret_cast<T *>(base + size - bytes);
    std::memset(front(), kPattern, kFront);
    fill(value);
  }
  Guarded(const Guarded &other) : Guarded(other.count) {
    std::memcpy(first, other.first, count * sizeof(T));
  }
  Guarded &operator=(const Guarded &) = delete;
  ~Guarded() { munmap(base, mapped); }

  /// Whether the bytes before the array are unchanged.
  bool intact() const {
    return std::all_of(front(), front() + kFront,
                       [](unsigned char byte) { return byte == kPattern; });
  }

  void fill(T value) {
    for (size_t i = 0; i < count; ++i)
      first[i] = value;
  }

  T *data() { return first; }
  const T *data() const { return first; }
  T *begin() { return first; }
  T *end() { return first + count; }
  const T *begin() const { return first; }
  const T *end() const { return first + count; }
  T &operator[](int64_t i) { return first[i]; }
  const T &operator[](int64_t i) const { return first[i]; }
  int64_t length() const { return static_cast<int64_t>(count); }

private:
  static constexpr size_t kFront = 64;
  static constexpr unsigned char kPattern = 0xa5;

  unsigned char *front() const {
    return reinterpret_cast<unsigned char *>(first) - kFront;
  }

  size_t count;
  size_t size = 0;
  size_t mapped = 0;
  unsigned char *base = nullptr;
  T *first = nullptr;
};

} // namespace qwen

#endif // QWEN_VERIFY_GUARDED_H
