//===- Arc4Random.cpp - A function that old C libraries lack --------------===//
//
// The archives of libstdc++ and LLVM in Debian call arc4random of glibc 2.36. A
// portable program has its own, so that it runs with an older glibc.
//
//===----------------------------------------------------------------------===//

#include <cstdint>
#include <cstdlib>
#include <sys/random.h>

/// Returns 32 random bits of the system.
extern "C" uint32_t arc4random() noexcept {
  uint32_t bits = 0;
  // The system gives up to 256 bytes as a whole, and fails only if a signal
  // comes before its generator is ready.
  while (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
  }
  return bits;
}
