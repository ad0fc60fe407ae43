//===- Sampled.h - Which loops of tests are sampled -------------*- C++ -*-===//

#ifndef QWEN_TEST_UNIT_SAMPLED_H
#define QWEN_TEST_UNIT_SAMPLED_H

#include <cstdlib>

namespace qwen::test {

/// Whether the tests run a sample of a loop that takes long: under sanitizers
/// and emulated, which take many times as long, but not in make test-full.
inline bool isSampled() {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||     \
    defined(__aarch64__)
  return std::getenv("QWEN_TEST_FULL") == nullptr;
#else
  return false;
#endif
}

} // namespace qwen::test

#endif // QWEN_TEST_UNIT_SAMPLED_H
