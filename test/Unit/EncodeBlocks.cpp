//===- EncodeBlocks.cpp - The q4_0 encoder as a filter --------------------===//
//
// Reads f32 values from standard input, 32 a block, and writes their Q4_0
// blocks to standard output; test/Integration/q4_0_gguf.py compares them.
//
//===----------------------------------------------------------------------===//

#include "qwen/Reference/Encode.h"

#include <cstdio>

using namespace qwen;

int main() {
  float x[32];
  while (std::fread(x, sizeof(x), 1, stdin) == 1) {
    BlockQ4_0 block;
    const reference::EncodeStatus status = reference::encodeQ4_0(x, block);
    if (status != reference::EncodeStatus::Ok) {
      std::fprintf(stderr, "encode-blocks: a block %s\n",
                   reference::encodeStatusMessage(status).data());
      return 1;
    }
    if (std::fwrite(&block, sizeof(block), 1, stdout) != 1)
      return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
