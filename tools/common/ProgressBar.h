//===- ProgressBar.h - Progress on a terminal -------------------*- C++ -*-===//

#ifndef QWEN_TOOLS_PROGRESSBAR_H
#define QWEN_TOOLS_PROGRESSBAR_H

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace qwen {

/// Draws a progress bar if standard error is a terminal, with the time left
/// once that is long, and clears it at the end. Debian has no kept library for
/// this.
class ProgressBar {
public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar &) = delete;
  ProgressBar &operator=(const ProgressBar &) = delete;

  /// Says that `done` of `total` parts of the work are done.
  void update(uint64_t done, uint64_t total);

  /// From now on, bars are lines of JSON to `descriptor` instead, one for each
  /// percent: {"stage": LABEL, "done": N, "total": N}.
  static void report(int descriptor);
  static bool isReported();

private:
  /// The time that the rest takes at the speed so far, if it is known.
  std::string timeLeft(uint64_t done, uint64_t total);
  void draw(const std::string &left) const;

  const std::string label;
  const bool isTerminal;
  int percent = -1;
  /// The first update, and what was done then.
  std::optional<std::pair<std::chrono::steady_clock::time_point, uint64_t>>
      start;
};

} // namespace qwen

#endif // QWEN_TOOLS_PROGRESSBAR_H
