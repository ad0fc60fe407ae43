//===- RowTimes.h - How long calls take by their rows -----------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_ROWTIMES_H
#define QWEN_RUNTIME_ENGINE_ROWTIMES_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qwen {

/// Measured times of something that takes longer with more rows, and what they
/// let expect. docs/decisions/0038 has the rules.
class RowTimes {
public:
  /// For at most `rows` rows.
  explicit RowTimes(int64_t rows) : times(static_cast<size_t>(rows) + 1) {}

  /// Does nothing if there are more rows, or no time.
  void record(int64_t rows, double seconds);
  /// Whether something has been recorded.
  bool isMeasured() const { return measured > 0; }
  /// Whether `rows` rows have been recorded often, and among the last `within`
  /// times.
  bool isKnown(int64_t rows, int64_t within) const;
  /// The seconds of `rows` rows, as measured or expected from other numbers.
  double secondsOf(int64_t rows) const;

private:
  /// What is known of a number of rows.
  struct Measured {
    /// The logarithm of the seconds, on average.
    double time = 0;
    int64_t count = 0;
    /// The value of `measured` at the last time.
    int64_t last = 0;
  };
  /// The seconds by numbers of rows that are known.
  double expectedSeconds(int64_t rows) const;

  std::vector<Measured> times;
  int64_t measured = 0;
  /// The number of rows that was recorded last, and the greatest one.
  int64_t latest = 0, greatest = 0;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_ROWTIMES_H
