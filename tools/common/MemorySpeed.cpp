//===- MemorySpeed.cpp - How fast this machine reads memory ---------------===//

#include "MemorySpeed.h"

#include "ReadStreams.h"

#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/Numa.h"
#include "qwen/Support/Pages.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <sys/mman.h>
#include <thread>

using namespace qwen;
using Clock = std::chrono::steady_clock;

std::vector<ReadPattern> qwen::readPatterns() {
  std::vector<ReadPattern> result;
  for (const size_t distance : {0, 1024, 4096}) {
    result.push_back({readStreams<1>, 1, distance});
    result.push_back({readStreams<2>, 2, distance});
    result.push_back({readStreams<4>, 4, distance});
    result.push_back({readStreams<8>, 8, distance});
  }
  return result;
}

/// The time runs from the first begin to the last end. Each thread reads the
/// clock itself, because a thread that waits for others reads it late.
double qwen::readSpeed(const ReadPattern &pattern, const uint8_t *base,
                       size_t bytes, int32_t threads) {
  const size_t part = bytes / static_cast<size_t>(threads);
  std::vector<Clock::time_point> begin(static_cast<size_t>(threads)),
      end(static_cast<size_t>(threads));
  std::atomic<int32_t> ready = 0;
  std::atomic<uint64_t> sink = 0;
  const auto work = [&](size_t t) {
    ready.fetch_add(1);
    while (ready.load() < threads) {
    }
    begin[t] = Clock::now();
    sink += pattern.read(base + t * part, part, pattern.distance);
    end[t] = Clock::now();
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < static_cast<size_t>(threads); ++t)
    others.emplace_back(work, t);
  work(0);
  for (std::thread &thread : others)
    thread.join();
  const std::chrono::duration<double> seconds =
      *std::ranges::max_element(end) - *std::ranges::min_element(begin);
  return static_cast<double>(bytes) / seconds.count();
}

/// memorySpeed with memory of a node, or of any.
static double bestSpeed(int32_t threads, std::optional<int> node) {
  constexpr uint64_t kMost = uint64_t{512} << 20, kUnit = uint64_t{1} << 20;
  const uint64_t bytes =
      std::clamp(freeMemory().value_or(kMost) / 4, kUnit, kMost) / kUnit *
      kUnit;
  const Pages pages(bytes, Place::Memory, "the measurement of memory");
  auto *base = pages.as<uint8_t>();
  if (node)
    preferNode(base, bytes, *node);
  // Weights lie in huge pages where the system has some.
  madvise(base, bytes, MADV_HUGEPAGE);
  // Pages that nobody wrote are one page of zeros.
  memset(base, 1, bytes);
  double best = 0;
  for (int pass = 0; pass < 2; ++pass)
    for (const ReadPattern &pattern : readPatterns())
      best = std::max(best, readSpeed(pattern, base, bytes, threads));
  return best;
}

double qwen::memorySpeed(int32_t threads) {
  return bestSpeed(threads, std::nullopt);
}

double qwen::nodeSpeed(const std::vector<int> &cpus, int node) {
  double speed = 0;
  std::exception_ptr failure;
  // The threads that it starts have its mask.
  std::thread([&] {
    bindThread(cpus);
    try {
      speed = bestSpeed(static_cast<int32_t>(cpus.size()), node);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure)
    std::rethrow_exception(failure);
  return speed;
}
