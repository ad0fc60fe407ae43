//===- TileTurns.cpp - Tile registers of AMX in turns ---------------------===//

#include "TileTurns.h"

using namespace qwen;
using namespace mlir;

/// Turns between the last multiplication into a tile and its store, which would
/// wait for the multiplication.
static constexpr int64_t kLag = 2;
/// Stages whose scales are in memory: a step is not done before the second step
/// after it.
static constexpr int64_t kScaleStages = 4;
/// The best size of a strip, in blocks of 128 values of 16 tokens: lines of
/// 640 KiB, so that sums and weights have their part of the second cache. Fewer
/// tiles of tokens unpack weights too often.
static constexpr int64_t kStripBlocks = 320, kStripTiles = 6;
/// Blocks of a strip that has the least tiles.
static constexpr int64_t kMostBlocks = 2 * kMostTiledLength / kActivationBlock;

//===----------------------------------------------------------------------===//
// Parts of rows
//===----------------------------------------------------------------------===//

Value TileTurns::tokenScale(const Step &step, int64_t tile, int64_t row) {
  Value scales = b.at(tokenScales, ofTile(step, tile), kLineBytes);
  return b.splat(floats, b.load(b.f32, b.at(scales, row * 4)));
}

Value TileTurns::tokenSums(const Step &step, int64_t tile, int64_t row) {
  Value first =
      b.at(activationSums, ofTile(step, tile), kLines * shape.sumBytes);
  return b.at(first, row * shape.sumBytes);
}

void TileTurns::addToSums(Value base, int64_t index, Value t, Value scale) {
  Value sum = b.fma(t, scale, loadVector(floats, base, index));
  b.store(sum, b.at(base, index * kLineBytes));
}

//===----------------------------------------------------------------------===//
// Memory and configuration
//===----------------------------------------------------------------------===//

/// The palette, then for each tile register bytes of a line, then lines.
void TileTurns::configure() {
  SmallVector<int8_t> values(64, 0);
  auto set = [&](int64_t number, int64_t lines, int64_t lineBytes) {
    values[16 + 2 * number] = int8_t(lineBytes);
    values[48 + number] = int8_t(lines);
  };
  values[0] = 1;
  for (int64_t i = 0; i < kTokenTile; ++i)
    set(i, kLines, kLineBytes);
  for (int64_t i : {0, 1}) {
    set(kTokenTile + i, kLines, 4 * shape.depthLines);
    set(kWeightTile + i, shape.depthLines, kLineBytes);
  }
  Value config = b.scratch(64);
  b.store(arith::ConstantOp::create(
              b, DenseElementsAttr::get(bytes, ArrayRef<int8_t>(values))),
          config);
  amx("ldtilecfg", config);
}

void TileTurns::allocate() {
  weightLines = b.scratch(depth * weightBytes);
  weightScales = b.scratch(kScaleStages * depth * scaleBytes);
  dots = b.scratch(2 * shape.dots * kTileBytes);
  sums = b.scratch(2 * stripBytes);
  noSums = b.scratch(unitBytes);
  if (shape.sumBytes != 0)
    activationSums = b.scratch(kMostBlocks * kLines * shape.sumBytes);
}

/// A strip has at most kMostBlocks, and at least the tiles of a unit.
void TileTurns::sizeStrips() {
  Value best = b.larger(b.div(b.integer(kStripBlocks), blocks), kStripTiles);
  Value most = b.smaller(b.div(b.integer(kMostBlocks), blocks), best);
  stripTokens = b.smaller(b.mul(b.div(most, tokenTiles), sizes.tokens),
                          b.integer(sizes.strip));
}

void TileTurns::emit() {
  p.bypassCaches(sizes.bypass);
  configure();
  allocate();
  sizeStrips();
  b.branch(
      b.isLess(p.panelBegin, p.panelEnd),
      [&] {
        b.loop(0, p.m, stripTokens, [&](Value first) {
          beginStrip(first);
          overPanels();
        });
      },
      [] {});
  amx("tilerelease", {});
  p.finish();
}

void TileTurns::beginStrip(Value first) {
  firstToken = first;
  Value count = b.smaller(b.sub(p.m, first), stripTokens);
  tiles = b.div(b.add(count, kLines - 1), kLines);
  units = b.div(b.add(tiles, tokenTiles - 1), tokenTiles);
  Value before = b.mul(b.div(first, kLines), blocks);
  tokenLines = b.at(p.q, before, kBlockBytes);
  tokenScales = b.at(p.d, before, kLineBytes);
  if (shape.sumBytes != 0)
    arrangeSums();
}

//===----------------------------------------------------------------------===//
// Sums of activations
//===----------------------------------------------------------------------===//

/// The lanes of a vector of `type` whose elements are in front of element
/// `end`, if the first is element `begin`.
Value TileTurns::activeLanes(VectorType type, Value begin, Value end) {
  return b.intrinsic(type.clone(b.getI1Type()),
                     "llvm.get.active.lane.mask.v" +
                         std::to_string(type.getNumElements()) + "i1.i64",
                     {begin, end});
}

/// Arranges the sums of the strip's tokens, block by block of a tile. Tokens
/// that the last tile lacks may have any sums, because theirs are not stored.
void TileTurns::arrangeSums() {
  const VectorType type = b.vector(kBlockGroups, b.i32);
  b.loop(0, b.smaller(b.sub(p.m, firstToken), stripTokens), 1, [&](Value i) {
    Value tile = b.div(i, kLines), row = b.sub(i, b.mul(tile, kLines));
    Value from = b.at(p.sums, b.mul(b.add(firstToken, i), groups), 4);
    b.loop(0, blocks, 1, [&](Value block) {
      Value group = b.mul(block, kBlockGroups);
      Value groupSums = LLVM::MaskedLoadOp::create(
          b, type, b.at(from, group, 4), activeLanes(type, group, groups),
          b.constant(type, 0), 4);
      Value place = b.add(b.mul(tile, blocks), block);
      arrangeSums(groupSums,
                  b.at(activationSums, b.add(b.mul(place, kLines), row),
                       shape.sumBytes));
    });
  });
}

//===----------------------------------------------------------------------===//
// Arranged weights
//===----------------------------------------------------------------------===//

void TileTurns::unpackGroup(Value panel, Value group, WriteLine write) {
  Value block = p.blockOf(group);
  Value chunks = p.chunksOf(p.headerOf(panel, block),
                            b.sub(group, b.mul(block, p.blockGroups)));
  for (int64_t i = 0; i < p.unpack->chunks(); ++i) {
    const Values codes = p.unpack->codes(b, i, [&](int64_t chunk, bool) {
      return b.load(bytes, b.at(chunks, chunk * kChunkBytes));
    });
    for (int64_t part = 0; part < p.unpack->parts; ++part)
      write(p.unpack->bytes(b, codes, i, part), i + part * p.unpack->chunks());
  }
}

void TileTurns::arrangeGroups(Value block, Value lines, int64_t planes,
                              function_ref<void(Value, Value)> arrange) {
  b.loop(0, kBlockGroups, 1, [&](Value inBlock) {
    Value group = b.add(b.mul(block, kBlockGroups), inBlock);
    Value to = b.at(lines, inBlock, kGroupBytes);
    b.branch(
        b.isLess(group, groups), [&] { arrange(group, to); },
        [&] {
          for (int64_t plane = 0; plane < planes; ++plane)
            for (int64_t i = 0; i < kGroupBytes; i += kLineBytes)
              b.store(b.constant(bytes, 0), b.at(to, plane * kBlockBytes + i));
        });
  });
}

void TileTurns::arrangeScales(Value panel, Value first, Value to) {
  // fma(0, -0, t) is t, a zero's sign included.
  const Values scales = b.choose(
      b.isLess(first, groups),
      [&] {
        return p.scaleVectors(p.headerOf(panel, p.blockOf(first)),
                              kPanelOutputs, 0);
      },
      [&] { return Values(scaling.count(), b.zeros(floats, -0.0f)); });
  for (auto [i, scale] : llvm::enumerate(scales))
    b.store(scale, b.at(to, int64_t(i) * kLineBytes));
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

TileTurns::Step TileTurns::noStep() {
  return {b.integer(0), b.integer(0), noSums, weightScales};
}

/// The turns of step `now`, whose weights have their lines at `lines`; null for
/// turns that multiply nothing. `carried` has the places of the dots of this
/// step and the last one, then the last step and the one before.
Values TileTurns::step(ValueRange carried, Value lines, const Step *now) {
  Value to = carried[0], before = carried[1];
  const Step last = {carried[2], carried[3], carried[4], carried[5]},
             earlier = {carried[6], carried[7], carried[8], carried[9]};
  Values tokens;
  for (int64_t t = 0; now && t < tokenTiles; ++t)
    tokens.push_back(b.at(tokenLines, ofTile(*now, t), kBlockBytes));
  for (int64_t turn = 0; turn < shape.turns; ++turn) {
    if (now)
      multiply(turn, tokens, lines);
    const bool isLate = turn < kLag;
    addRows((turn + shape.turns - kLag) % shape.turns, isLate ? to : before,
            isLate ? earlier : last);
    const std::optional<Stored> tile = storedIn(turn);
    if (tile && (isLate || now))
      amx("tilestored64", {tileNumber(tile->tile),
                           b.at(isLate ? before : to, tile->place * kTileBytes),
                           b.integer(kLineBytes)});
  }
  const Step next = now ? *now : noStep();
  return {before,      to,          next.number, next.second, next.sums,
          next.scales, last.number, last.second, last.sums,   last.scales};
}

/// `count` steps that multiply nothing.
Values TileTurns::idle(Int count, ValueRange carried) {
  return b.loop(0, count, 1, carried, [&](Value, ValueRange values) {
    return step(values, Value(), nullptr);
  });
}

/// Fetches the unit's share of blocks [first, last) of the panels that follow.
void TileTurns::fetchAhead(Value panel, Value first, Value last, Value unit) {
  const int64_t blockBytes =
      kBlockGroups * panelGroupBytes(p.format) +
      panelHeaderBytes(p.format) * kActivationBlock / weightBlock(p.format);
  const int64_t line = ProductBuilder::kCacheLine;
  Value all = b.mul(b.sub(last, first), blockBytes);
  Value share = b.mul(b.add(b.div(all, b.mul(units, line)), 1), line);
  for (int64_t i = 0; i < shape.panels; ++i) {
    Value next = b.at(p.weights, b.add(panel, shape.panels + i), panelStride);
    Value from = b.at(b.at(next, first, blockBytes), b.mul(unit, share));
    b.loop(0, share, line, [&](Value at) { b.prefetch(b.at(from, at)); });
  }
}

/// The steps of a stage: blocks [first, last), unpacked to `lines`. `base` is
/// the step of the first block and unit.
Values TileTurns::overUnits(Value panel, const Step &base, Value lines,
                            Value first, Value last, ValueRange carried) {
  return b.loop(0, units, 1, carried, [&](Value unit, ValueRange before) {
    Value tile = b.mul(unit, tokenTiles);
    Value second = b.integer(0);
    if (tokenTiles > 1)
      second = arith::SelectOp::create(b, b.isLess(b.add(tile, 1), tiles),
                                       blocks, second);
    Value number = b.add(base.number, b.mul(tile, blocks));
    Value unitSums = b.at(base.sums, unit, unitBytes);
    fetchAhead(panel, first, last, unit);
    return b.loop(first, last, 1, before, [&](Value block, ValueRange values) {
      Value i = b.sub(block, first);
      const Step now = {b.add(number, i), second, unitSums,
                        b.at(base.scales, i, scaleBytes)};
      return step(values, b.at(lines, i, weightBytes), &now);
    });
  });
}

/// Stage `number` of a strip: `depth` blocks from `first` on of the panels from
/// `panel` on.
Values TileTurns::stage(Value panel, Value number, Value first,
                        ValueRange carried) {
  Value last = b.smaller(blocks, b.add(first, depth));
  Values panels;
  for (int64_t i = 0; i < shape.panels; ++i)
    panels.push_back(b.at(p.weights,
                          b.smaller(b.add(panel, i), b.sub(p.panelEnd, 1)),
                          panelStride));
  Value scales = b.at(weightScales, b.bitAnd(number, kScaleStages - 1),
                      depth * scaleBytes);
  b.loop(first, last, 1, [&](Value block) {
    Value i = b.sub(block, first);
    arrangeBlock(panels, block, b.at(weightLines, i, weightBytes),
                 b.at(scales, i, scaleBytes));
  });
  const Step base = {first, b.integer(0), sumsOf(panel), scales};
  const Values after =
      overUnits(panel, base, weightLines, first, last, carried);
  // A single step would leave rows to the stage after the next.
  Value isShort = b.isEqual(b.mul(b.sub(last, first), units), 1);
  return idle(Value(arith::ExtUIOp::create(b, b.getI64Type(), isShort)), after);
}

/// All panels with the strip. A panel's outputs are complete, and stored, after
/// the first stage of the next.
void TileTurns::overPanels() {
  const Step none = noStep();
  Values carried = {dots, b.at(dots, shape.dots * kTileBytes)};
  for (int i = 0; i < 2; ++i)
    carried.append({none.number, none.second, none.sums, none.scales});
  carried.push_back(b.integer(0));
  carried = b.loop(
      p.panelBegin, p.panelEnd, shape.panels, carried,
      [&](Value panel, ValueRange before) {
        Value cleared = sumsOf(panel);
        b.loop(0, b.mul(units, unitBytes), kLineBytes,
               [&](Value at) { b.store(b.zeros(floats), b.at(cleared, at)); });
        return b.loop(
            0, blocks, depth, before, [&](Value first, ValueRange values) {
              Value number = values.back();
              Values after = stage(panel, number, first, values.drop_back());
              Value isFirst =
                  b.bitAnd(b.isEqual(first, 0), b.isLess(p.panelBegin, panel));
              b.branch(
                  isFirst, [&] { storePanels(b.sub(panel, shape.panels)); },
                  [] {});
              after.push_back(b.add(number, 1));
              return after;
            });
      });
  carried.pop_back();
  idle(2, carried);
  Value behind = b.sub(b.sub(p.panelEnd, p.panelBegin), 1);
  storePanels(
      b.add(p.panelBegin, b.mul(b.div(behind, shape.panels), shape.panels)));
}

/// The sums of the strip for the panels from `panel` on.
Value TileTurns::sumsOf(Value panel) {
  Value number = b.div(b.sub(panel, p.panelBegin), shape.panels);
  return b.at(sums, b.bitAnd(number, 1), stripBytes);
}

/// Stores the sums of the strip for the panels from `panel` on.
void TileTurns::storePanels(Value panel) {
  Value from = sumsOf(panel);
  auto storeRows = [&](int64_t panels) {
    b.loop(0, tiles, 1, [&](Value tile) {
      Value unit = b.div(tile, tokenTiles);
      Value place = b.integer(0);
      if (tokenTiles > 1)
        place = b.sub(tile, b.mul(unit, tokenTiles));
      Value unitSums = b.at(from, unit, unitBytes);
      Value token = b.add(firstToken, b.mul(tile, kLines));
      Value count = b.smaller(b.sub(p.m, token), b.integer(kLines));
      b.loop(0, count, 1, [&](Value r) {
        Values row;
        for (int64_t i = 0; i < panels; ++i) {
          Value offset = b.integer(sumsAt(0, i));
          if (tokenTiles > 1)
            offset = b.add(offset, b.mul(place, sumsAt(1, i) - sumsAt(0, i)));
          row.push_back(
              b.load(floats, b.at(b.at(unitSums, offset), r, kLineBytes)));
        }
        p.store(b.mul(panel, kPanelOutputs), b.add(token, r), row,
                kPanelOutputs);
      });
    });
  };
  if (shape.panels == 1)
    return storeRows(1);
  b.branch(
      b.isLess(b.add(panel, 1), p.panelEnd), [&] { storeRows(shape.panels); },
      [&] { storeRows(1); });
}
