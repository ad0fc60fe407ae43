//===- AmxModel.cpp - AMX in C++ ------------------------------------------===//
//
// A function of AmxState for each modelled instruction. The build compiles this
// file to bitcode, which InstructionModels links with kernels. A trap stands
// for each exception of the processor (Intel's manual, volume 2).
//
//===----------------------------------------------------------------------===//

#include "qwen/CodeGen/Cpp/AmxState.h"

using namespace qwen;

using Line = AmxState::Line;
/// A word at any address.
using StoredWord [[gnu::aligned(1)]] = int32_t;

// All functions that pass a vector are inlined.
#pragma clang diagnostic ignored "-Wpsabi"

static constexpr int64_t kTiles = 8, kLines = 16, kLineBytes = 64;
/// The places of each tile's bytes a line, u16, and lines, u8, in a
/// configuration.
static constexpr int64_t kBytesOffset = 16, kLinesOffset = 48;

static void check(bool isGood) {
  if (!isGood)
    __builtin_trap();
}

static int64_t bytesOf(const uint8_t *config, int64_t tile) {
  const uint8_t *bytes = config + kBytesOffset + 2 * tile;
  return bytes[0] + 256 * bytes[1];
}

/// The lines of a tile, which must have a shape.
static int64_t linesOf(const AmxState *state, int64_t tile) {
  check(state->config[0] == 1 && state->config[kLinesOffset + tile] != 0);
  return state->config[kLinesOffset + tile];
}

/// The words of a tile's line, which must have some and no part of one.
static int64_t wordsOf(const AmxState *state, int64_t tile) {
  const int64_t bytes = bytesOf(state->config, tile);
  check(bytes != 0 && bytes % 4 == 0);
  return bytes / 4;
}

static void clear(AmxState *state, int64_t tile) {
  for (Line &line : state->tiles[tile])
    line = 0;
}

/// Byte `i` of each word.
[[gnu::always_inline]] static inline Line byteOf(Line words, int i) {
  return words << (24 - 8 * i) >> 24;
}

extern "C" {

/// The state before the first instruction.
void qwenAmxInit(AmxState *state) { state->config[0] = 0; }

/// ldtilecfg
void qwenAmxConfigure(AmxState *state, const uint8_t *from) {
  const auto areZero = [&](int64_t begin, int64_t end) {
    bool result = true;
    for (int64_t i = begin; i < end; ++i)
      result &= from[i] == 0;
    return result;
  };
  // A palette, no line to start at, and zeros in all reserved bytes.
  check(from[0] == 1 && areZero(1, kBytesOffset) &&
        areZero(kBytesOffset + 2 * kTiles, kLinesOffset) &&
        areZero(kLinesOffset + kTiles, 64));
  for (int64_t i = 0; i < 64; ++i)
    state->config[i] = from[i];
  for (int64_t tile = 0; tile < kTiles; ++tile) {
    check(bytesOf(from, tile) <= kLineBytes &&
          from[kLinesOffset + tile] <= kLines);
    clear(state, tile);
  }
}

/// tilerelease
void qwenAmxRelease(AmxState *state) { qwenAmxInit(state); }

/// tilezero
void qwenAmxZero(AmxState *state, int64_t tile) {
  linesOf(state, tile);
  clear(state, tile);
}

/// tileloadd
void qwenAmxLoad(AmxState *state, int64_t tile, const char *from,
                 int64_t stride) {
  const int64_t lines = linesOf(state, tile), words = wordsOf(state, tile);
  clear(state, tile);
  for (int64_t i = 0; i < lines; ++i)
    for (int64_t j = 0; j < words; ++j)
      state->tiles[tile][i][j] =
          reinterpret_cast<const StoredWord *>(from + i * stride)[j];
}

/// tilestored
void qwenAmxStore(AmxState *state, int64_t tile, char *to, int64_t stride) {
  const int64_t lines = linesOf(state, tile), words = wordsOf(state, tile);
  for (int64_t i = 0; i < lines; ++i)
    for (int64_t j = 0; j < words; ++j)
      reinterpret_cast<StoredWord *>(to + i * stride)[j] =
          state->tiles[tile][i][j];
}

/// tdpbssd: adds to each word of `c` the products of four signed bytes of a
/// word of `a` and of `b`, for each word of a line of `a`.
void qwenAmxDotSigned(AmxState *state, int64_t c, int64_t a, int64_t b) {
  const int64_t lines = linesOf(state, c), depth = wordsOf(state, a);
  check(lines == linesOf(state, a) && depth == linesOf(state, b) &&
        wordsOf(state, c) == wordsOf(state, b));
  for (int64_t i = 0; i < lines; ++i) {
    Line sum = state->tiles[c][i];
    for (int64_t j = 0; j < depth; ++j) {
      const Line x = state->tiles[a][i][j], w = state->tiles[b][j];
      for (int byte = 0; byte < 4; ++byte)
        sum += byteOf(x, byte) * byteOf(w, byte);
    }
    state->tiles[c][i] = sum;
  }
}

} // extern "C"
