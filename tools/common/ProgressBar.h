//===- ProgressBar.h - Progress on a terminal -------------------*- C++ -*-===//

#ifndef QWEN_TOOLS_PROGRESSBAR_H
#define QWEN_TOOLS_PROGRESSBAR_H

#include <cstdint>
#include <string>

namespace qwen {

/// Draws a progress bar if standard error is a terminal, and clears it at the
/// end. Debian has no kept library for this.
class ProgressBar {
public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar &) = delete;
  ProgressBar &operator=(const ProgressBar &) = delete;

  /// Says that `done` of `total` parts of the work are done.
  void update(uint64_t done, uint64_t total);

private:
  const std::string label;
  const bool isTerminal;
  int percent = -1;
};

} // namespace qwen

#endif // QWEN_TOOLS_PROGRESSBAR_H
