//===- DriverCall.h - A call of the driver's functions ----------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_DRIVERCALL_H
#define QWEN_TEST_UNIT_DRIVERCALL_H

#include "NumericsRandom.h"

#include "qwen/ABI/DriverABI.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <span>
#include <thread>

namespace qwen::test {

/// Context::shares of `threads` threads with equal shares.
inline std::vector<uint32_t> equalShares(int64_t threads) {
  std::vector<uint32_t> shares;
  for (int64_t t = 0; t <= threads; ++t)
    shares.push_back(static_cast<uint32_t>(t * 65536 / threads));
  return shares;
}

/// The same with shares of any size, some of which are 0.
inline std::vector<uint32_t> randomShares(int64_t threads, Random &random) {
  std::vector<uint32_t> shares = equalShares(threads);
  for (int64_t t = 1; t < threads; ++t)
    shares[static_cast<size_t>(t)] =
        static_cast<uint32_t>(random.between(0, 4) * 16384);
  std::ranges::sort(shares);
  return shares;
}

/// A context and the threads that share it.
class DriverCall {
public:
  /// A call of `tokens` tokens and `ops` ops. The other fields of `context` are
  /// the test's.
  DriverCall(std::vector<uint32_t> shares, int64_t tokens, int64_t ops)
      : flags(static_cast<size_t>(tokens), kNoFlag),
        taken(static_cast<size_t>(ops)), bounds(std::move(shares)),
        barrier(threads()) {
    context.counts[kTokensOfCall] = {tokens, nullptr, flags.data()};
    context.shares = bounds.data();
    context.barrier = [](void *state, int32_t) {
      static_cast<std::barrier<> *>(state)->arrive_and_wait();
    };
    context.barrierState = &barrier;
    context.taken = taken.data();
  }

  /// Lets `count` select these tokens.
  void select(int64_t count, std::span<const int32_t> tokens) {
    context.counts[count] = {std::ssize(tokens), tokens.data(), flags.data()};
  }

  int32_t threads() const { return static_cast<int32_t>(bounds.size()) - 1; }

  /// Calls work(thread) in each thread. All begin together.
  template <typename Work> void run(const Work &work) {
    std::atomic<int32_t> ready = 0;
    const auto begin = [&](int32_t thread) {
      // Awake, unlike at the barrier: threads on other cores meet.
      for (++ready; ready < threads();)
        std::this_thread::yield();
      work(thread);
    };
    std::vector<std::jthread> others;
    for (int32_t thread = 1; thread < threads(); ++thread)
      others.emplace_back(begin, thread);
    begin(0);
  }

  Context context{};
  std::vector<uint32_t> flags, taken;

private:
  std::vector<uint32_t> bounds;
  std::barrier<> barrier;
};

/// Memory with values at places, as the arena and the weight image.
class Memory {
public:
  /// Appends `values` and returns the place of the first, or -1 of none.
  template <typename T> int64_t add(const std::vector<T> &values) {
    if (values.empty())
      return -1;
    const int64_t place = reserve<T>(static_cast<int64_t>(values.size()));
    std::memcpy(&bytes[static_cast<size_t>(place)], values.data(),
                values.size() * sizeof(T));
    return place;
  }
  /// Appends `count` values, which are not finite if they are floats.
  template <typename T = float> int64_t reserve(int64_t count) {
    const auto place = alignTo(static_cast<int64_t>(bytes.size()), 64);
    bytes.resize(static_cast<size_t>(place + count * int64_t{sizeof(T)}), 0xFF);
    return place;
  }
  template <typename T = float> T *at(int64_t place) {
    return reinterpret_cast<T *>(bytes.data() + place);
  }

  /// Context::images with this memory as the second (weightAt). There is no
  /// first one to read.
  const uint8_t *const *images() {
    bases[1] = bytes.data();
    return bases;
  }

private:
  std::vector<uint8_t> bytes;
  const uint8_t *bases[2] = {};
};

/// The weight at `place` of Memory::images, absent at -1.
inline WeightPlace weightAt(int64_t place) {
  return {ImageId(1), WeightOffset(place)};
}

/// A value in the arena.
inline FloatPlace floatPlace(int64_t at, int64_t stride) {
  return {ArenaOffset(at), Stride(stride)};
}
inline BlockPlace blockPlace(int64_t at, int64_t stride, int64_t scales = -1,
                             int64_t sums = -1) {
  return {ArenaOffset(at), Stride(stride), ArenaOffset(scales),
          ArenaOffset(sums)};
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_DRIVERCALL_H
