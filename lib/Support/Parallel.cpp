//===- Parallel.cpp - Work on several threads -----------------------------===//

#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

using namespace qwen;

namespace {
/// The exception of the least i.
class FirstError {
public:
  /// Keeps the current exception, unless there is one of a lower i.
  void keep(size_t i) {
    const std::lock_guard lock(mutex);
    if (i < least) {
      least = i;
      error = std::current_exception();
    }
  }
  bool isFound() const { return least != kNone; }
  void rethrow() const {
    if (error)
      std::rethrow_exception(error);
  }

private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::mutex mutex;
  std::atomic<size_t> least = kNone;
  std::exception_ptr error;
};
} // namespace

void qwen::parallelFor(
    size_t count, unsigned threads,
    const std::function<void(size_t i, unsigned thread)> &work) {
  std::atomic<size_t> next = 0;
  FirstError error;
  const auto run = [&](unsigned thread) {
    for (size_t i; !error.isFound() && (i = next++) < count;) {
      try {
        work(i, thread);
      } catch (...) {
        error.keep(i);
      }
    }
  };
  std::vector<std::jthread> others;
  for (unsigned thread = 1; thread < std::min<size_t>(threads, count); ++thread)
    others.emplace_back(run, thread);
  run(0);
  others.clear();
  error.rethrow();
}

unsigned qwen::machineThreads() {
  return std::max(std::thread::hardware_concurrency(), 1u);
}
