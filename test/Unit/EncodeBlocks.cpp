//===- EncodeBlocks.cpp - Weight encoders as a filter ---------------------===//
//
// encode-blocks q4_0|q4_1|q5_0|q5_1|q8_0|iq4_nl reads f32 values from standard
// input, 32 for each block, and writes the blocks of gguf to standard output.
// test/Integration/gguf_blocks.py compares them.
//
//===----------------------------------------------------------------------===//

#include "GgmlBlocks.h"

#include <cstdio>
#include <string_view>

using namespace qwen;

/// Encodes all blocks with one encoder.
template <typename Block>
static int run(numerics::EncodeStatus (*encode)(const float[32],
                                                Block &block)) {
  float x[32];
  while (std::fread(x, sizeof(x), 1, stdin) == 1) {
    Block block;
    const numerics::EncodeStatus status = encode(x, block);
    if (status != numerics::EncodeStatus::Ok) {
      std::fprintf(stderr, "encode-blocks: a block %s\n",
                   numerics::encodeStatusMessage(status).data());
      return 1;
    }
    if (std::fwrite(&block, sizeof(block), 1, stdout) != 1)
      return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
  const std::string_view format = argc == 2 ? argv[1] : "";
  if (format == "q4_0")
    return run(encodeQ4_0);
  if (format == "q4_1")
    return run(encodeQ4_1);
  if (format == "q5_0")
    return run(encodeQ5_0);
  if (format == "q5_1")
    return run(encodeQ5_1);
  if (format == "q8_0")
    return run(encodeQ8_0);
  if (format == "iq4_nl")
    return run(encodeIQ4_NL);
  std::fprintf(stderr,
               "usage: encode-blocks q4_0|q4_1|q5_0|q5_1|q8_0|iq4_nl\n");
  return 2;
}
