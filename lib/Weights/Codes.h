//===- Codes.h - Codes of a dense stream of bits ----------------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_CODES_H
#define QWEN_LIB_WEIGHTS_CODES_H

#include <cstdint>

namespace qwen {

/// Whether unpackCodes() reads codes of so many bits: 2 to 6, or 8.
bool canUnpack(int64_t bits);

/// Reads `count` codes of `bits` bits, which follow each other from the lowest
/// bit of the first byte on. Each becomes a byte.
void unpackCodes(const uint8_t *from, int64_t bits, int64_t count,
                 uint8_t *codes);

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_CODES_H
