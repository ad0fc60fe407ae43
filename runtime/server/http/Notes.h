//===- Notes.h - What the log says of a request -----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_NOTES_H
#define QWEN_RUNTIME_SERVER_HTTP_NOTES_H

#include <cstddef>
#include <string>
#include <vector>

namespace qwen::server {

/// What the log says of a request besides its line: parts of it that have no
/// effect. One thread uses it.
class Notes {
public:
  /// Adds a line. Equal lines count once, and so do lines that differ in the
  /// numbers of elements alone ("input[3].x" and "input[4].x").
  void add(const std::string &line);
  /// The first lines, and how many others there were.
  std::vector<std::string> take();

private:
  std::vector<std::string> lines;
  size_t others = 0;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_NOTES_H
