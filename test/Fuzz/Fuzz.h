//===- Fuzz.h - What every fuzz target promises -----------------*- C++ -*-===//
//
// A parser may reject its input with an Error of one line. It must not crash,
// throw anything else, or use more memory than four times its input and a MiB.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_TEST_FUZZ_FUZZ_H
#define QWEN_TEST_FUZZ_FUZZ_H

#include "qwen/Support/Error.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen::fuzz {

/// Ends the program with a message that libFuzzer takes for a crash.
[[noreturn]] void fail(const std::string &what);

inline void require(bool condition, const char *what) {
  if (!condition)
    fail(what);
}

/// While it lives, memory in use may grow by `most` bytes.
class MemoryLimit {
public:
  explicit MemoryLimit(size_t most);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit &) = delete;
  MemoryLimit &operator=(const MemoryLimit &) = delete;
};

/// The bound of all parsers.
constexpr size_t memoryFor(size_t inputBytes) {
  return 4 * inputBytes + (size_t{1} << 20);
}

/// Runs a parser on an input of `inputBytes`. Returns whether it took it.
template <typename FnType> bool parses(size_t inputBytes, FnType parse) {
  const MemoryLimit limit(memoryFor(inputBytes));
  try {
    parse();
    return true;
  } catch (const Error &error) {
    const std::string_view message = error.what();
    require(!message.empty(), "an error without a message");
    require(message.find_first_of("\n\r") == std::string_view::npos,
            "an error of more than one line");
    return false;
  }
}

/// A folder whose files the inputs become.
class Folder {
public:
  Folder();
  ~Folder();
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;

  const std::filesystem::path &path() const { return folder; }
  /// Replaces a file's contents.
  void write(const char *name, std::string_view bytes) const;

private:
  std::filesystem::path folder;
};

inline std::string_view asText(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

/// The parts of an input of several files. A byte that no text has ends each
/// but the last; parts that are missing are empty.
std::vector<std::string_view> splitParts(std::string_view input, size_t count);

/// A copy on the heap, with nothing readable behind it, at a multiple of 16.
std::vector<uint8_t> copyOf(const uint8_t *data, size_t size);

} // namespace qwen::fuzz

#endif // QWEN_TEST_FUZZ_FUZZ_H
