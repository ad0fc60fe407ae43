//===- ParallelTest.cpp - Work on several threads -------------------------===//

#include "qwen/Support/Parallel.h"

#include "qwen/Support/Error.h"
#include "gtest/gtest.h"

#include <atomic>
#include <vector>

using namespace qwen;

TEST(Parallel, CallsEachOnce) {
  for (const unsigned threads : {1u, 3u, 64u})
    for (const size_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> calls(count);
      std::atomic<bool> known = true;
      parallelFor(count, threads, [&](size_t i, unsigned thread) {
        ++calls[i];
        if (thread >= threads)
          known = false;
      });
      for (const std::atomic<int> &each : calls)
        EXPECT_EQ(each, 1);
      EXPECT_TRUE(known);
    }
}

TEST(Parallel, ThrowsTheFirstError) {
  for (const unsigned threads : {1u, 4u}) {
    std::atomic<size_t> calls = 0;
    std::string message;
    try {
      parallelFor(10000, threads, [&](size_t i, unsigned) {
        ++calls;
        if (i >= 100)
          throw Error(std::to_string(i));
      });
    } catch (const Error &error) {
      message = error.what();
    }
    EXPECT_EQ(message, "100");
    EXPECT_LT(calls, 100 + 2 * threads);
  }
}
