//===- Pages.h - Memory for large arrays ------------------------*- C++ -*-===//

#ifndef QWEN_SUPPORT_PAGES_H
#define QWEN_SUPPORT_PAGES_H

#include <cstdint>
#include <string>
#include <utility>

namespace qwen {

/// Where pages lie. A temporary file has no name, and the system writes it to
/// the disk when it needs the memory.
enum class Place : uint8_t { Memory, TemporaryFile };

/// The place of a result of so many bytes: large ones lie in a file.
constexpr Place placeOf(int64_t bytes) {
  return bytes > int64_t{64} << 20 ? Place::TemporaryFile : Place::Memory;
}

/// A mapping of zeros.
class Pages {
public:
  /// Throws Error, which begins with `name`, if there is no room.
  Pages(uint64_t bytes, Place place, const std::string &name);
  ~Pages();
  Pages(Pages &&other) noexcept
      : base(std::exchange(other.base, nullptr)), size(other.size) {}
  Pages &operator=(Pages &&) = delete;

  template <typename T> T *as() const { return static_cast<T *>(base); }
  uint64_t bytes() const { return size; }

private:
  void *base;
  uint64_t size;
};

} // namespace qwen

#endif // QWEN_SUPPORT_PAGES_H
