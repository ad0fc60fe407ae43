//===- AmxState.h - The registers of modelled AMX ---------------*- C++ -*-===//

#ifndef QWEN_CODEGEN_CPP_AMXSTATE_H
#define QWEN_CODEGEN_CPP_AMXSTATE_H

#include <cstdint>

namespace qwen {

/// The tile registers and the configuration of AMX.
struct AmxState {
  /// The 16 words of a line. LLVM splits them into vectors of the machine.
  using Line = int32_t __attribute__((ext_vector_type(16)));

  /// Zeros outside of each tile's shape.
  Line tiles[8][16];
  /// The 64 bytes that ldtilecfg read. Byte 0 is the palette: 1 if the tiles
  /// have shapes, else 0.
  uint8_t config[64];
};

} // namespace qwen

#endif // QWEN_CODEGEN_CPP_AMXSTATE_H
