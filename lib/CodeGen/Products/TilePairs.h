//===- TilePairs.h - Two tiles of tokens by two of weights ------*- C++ -*-===//
//
// The turns of TileBlocks and TilePlanes.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_PRODUCTS_TILEPAIRS_H
#define QWEN_LIB_CODEGEN_PRODUCTS_TILEPAIRS_H

#include "TileTurns.h"

namespace qwen {

class TilePairs : public TileTurns {
public:
  using TileTurns::TileTurns;

protected:
  static Shape shapeOfPairs(int64_t panels, int64_t scaleVectors,
                            int64_t sumBytes) {
    return {.turns = 8,
            .panels = panels,
            .dots = kDots,
            .depthLines = kLines,
            .scaleVectors = scaleVectors,
            .sumBytes = sumBytes};
  }

  /// The tiles of tokens and of weights whose dots are in tile `place`.
  static int64_t tokensOf(int64_t place) {
    return place == 1 || place == 2 ? 1 : 0;
  }
  static int64_t weightsOf(int64_t place) { return place / 2; }
  /// The tile with the dots of these tokens and weights.
  static int64_t dotsAt(int64_t tokens, int64_t weights) {
    return weights == 0 ? tokens : 3 - tokens;
  }

  void multiply(int64_t turn, ArrayRef<Value> tokens, Value weights) override {
    const int64_t half = turn / kDots * kTileBytes, place = turn % kDots;
    if (place < 2)
      loadTile(kTokenTile + place, tokens[place], half);
    if (place % 2 == 0)
      loadTile(kWeightTile + place / 2, weights,
               place / 2 * kBlockBytes + half);
    if (half == 0)
      clearTile(place);
    addDots(place, kTokenTile + tokensOf(place),
            kWeightTile + weightsOf(place));
  }

  /// Tiles are complete in the last four turns.
  std::optional<Stored> storedIn(int64_t turn) const override {
    if (turn >= 2 && turn < 6)
      return std::nullopt;
    const int64_t place = (turn + 2) % kDots;
    return Stored{place, place};
  }

private:
  static constexpr int64_t kDots = 4;
};

} // namespace qwen

#endif // QWEN_LIB_CODEGEN_PRODUCTS_TILEPAIRS_H
