//===- FileLines.h - The lines of a file ------------------------*- C++ -*-===//

#ifndef QWEN_SUPPORT_FILELINES_H
#define QWEN_SUPPORT_FILELINES_H

#include <cstdint>
#include <optional>
#include <string>

namespace qwen {

/// A line of a file, without its end.
struct FileLine {
  /// From 1.
  uint64_t number;
  /// Empty if the line is longer than the reader's limit.
  std::string text;
  bool isTooLong = false;
  /// Whether a newline ends it. Only the last line may lack one.
  bool isWhole = true;
  /// Offset of its first byte in the file.
  uint64_t begin;
};

/// Reads a file of any size line by line. Holds at most a line and a block.
class FileLines {
public:
  /// Throws Error if `path` cannot be opened or is not a regular file. A line
  /// of more than `most` bytes is left out.
  FileLines(std::string path, size_t most);
  ~FileLines();
  FileLines(const FileLines &) = delete;
  FileLines &operator=(const FileLines &) = delete;

  /// The next line, or nullopt at the end. Throws Error.
  std::optional<FileLine> next();
  /// Begins again with the first line.
  void rewind();
  const std::string &path() const { return filePath; }
  size_t mostBytes() const { return most; }

private:
  /// Reads a block. Returns false at the end.
  bool fill();

  const std::string filePath;
  const size_t most;
  int fd = -1;
  /// What is read and not yet returned: `block` from `at`.
  std::string block;
  size_t at = 0;
  /// The offset of block[at] in the file.
  uint64_t offset = 0;
  uint64_t lines = 0;
};

} // namespace qwen

#endif // QWEN_SUPPORT_FILELINES_H
