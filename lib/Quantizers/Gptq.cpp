//===- Gptq.cpp - Columns that make up for each other's errors ------------===//
//
// Frantar et al. 2022, arXiv 2210.17323, with scales that are chosen again
// before each block. InputFactor.h has the objective.
//
//===----------------------------------------------------------------------===//

#include "Grid.h"
#include "Panels.h"
#include "Sources.h"

#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace qwen;
using numerics::EncodeStatus;

/// Values of the longest block.
static constexpr int64_t kMost = 256;

/// Panels of outputs that read the factor together, because it fits in no
/// cache.
static constexpr int64_t kPanels = 4;

namespace {
/// A block of columns, in the order of the factor.
struct Block {
  /// The number of columns before it, and of its own.
  int64_t at, count;
  /// Its place in the model's order.
  int64_t number;
  /// Of its columns: the squares of the factor's diagonal, at most 1.
  Lanes importance[kMost];
};

/// Integers of the columns of a block, and what weights are above their values.
struct Rounded {
  Lanes integers[kMost], wrong[kMost];
};

/// Chooses the integers of some outputs.
class Tile {
public:
  Tile(const WeightSource &source, const Grid &grid, const InputFactor &factor)
      : source(source), grid(grid), factor(factor), k(factor.k()),
        weights(static_cast<size_t>(kPanels * kPanel * k)),
        errors(weights.size()) {
    for (int64_t i = 0; i < kPanels * kPanel; i += kLanes)
      encoded.emplace_back(grid, k);
  }

  /// Sets the `count` outputs from `first` on.
  void run(int64_t first, int64_t count, Owned &result);

private:
  void read(int64_t first, int64_t count);
  Block blockAt(int64_t at, int64_t first) const;
  void runBlock(const Block &block, int64_t count);
  BlockScales round(const Block &block, const Lanes *w, Lanes *carried,
                    Rounded &result) const;
  Lanes attempt(const Block &block, int64_t from, int64_t to, const Lanes *w,
                const Lanes *carried, const Steps &steps,
                Rounded &result) const;
  void best(const Block &block, int64_t from, int64_t to, const Lanes *w,
            const Lanes *carried, Lanes *values) const;
  void carry(int64_t column, int64_t end, Lanes wrong, Lanes *terms) const;
  float diagonal(int64_t i) const {
    return factor.panel(i / kPanel)[i * kPanel + i % kPanel];
  }

  const WeightSource &source;
  const Grid &grid;
  const InputFactor &factor;
  const int64_t k;
  /// [panel][k][16], with columns in the order of the factor: the weights, and
  /// what they are above their integers' values.
  std::vector<float> weights, errors;
  /// Of eight outputs each.
  std::vector<EncodedOutputs> encoded;
};
} // namespace

void Tile::read(int64_t first, int64_t count) {
  std::vector<float> rows(static_cast<size_t>(kPanel * k));
  for (int64_t done = 0; done < count; done += kPanel) {
    const int64_t some = std::min(kPanel, count - done);
    source.read(first + done, some, rows.data());
    if (!std::all_of(rows.begin(), rows.begin() + some * k,
                     [](float value) { return std::isfinite(value); }))
      throw refusal(source, EncodeStatus::NotFinite);
    float *to = weights.data() + done * k;
    for (int64_t column : factor.blocks()) {
      const int64_t width = std::min(grid.block(), k - column);
      transposeRows(rows.data() + column, k, some, width, to);
      to += width * kPanel;
    }
  }
}

/// Adds to terms up to `end` what the error of `column` makes of them. Panels
/// have zeros below the diagonal.
void Tile::carry(int64_t column, int64_t end, Lanes wrong, Lanes *terms) const {
  const int64_t first = column / kPanel * kPanel;
  for (int64_t i = first; i < end; i += kPanel, terms += kPanel) {
    const float *row = factor.panel(i / kPanel) + column * kPanel;
    for (int64_t j = 0; j < kPanel; ++j)
      terms[j] = fma(wrong, splat(row[j]), terms[j]);
  }
}

/// The values of the block's columns `from` to `to` that would make their terms
/// 0, if there were integers for them.
void Tile::best(const Block &block, int64_t from, int64_t to, const Lanes *w,
                const Lanes *carried, Lanes *values) const {
  Lanes terms[kMost];
  std::copy(carried + from, carried + to, terms + from);
  for (int64_t j = from; j < to; ++j) {
    const Lanes change = terms[j] / diagonal(block.at + j);
    values[j] = w[j] + change;
    carry(block.at + j, block.at + to, -change, terms + j / kPanel * kPanel);
  }
}

/// Rounds the block's columns `from` to `to`. Returns the sum of the squares of
/// their terms.
Lanes Tile::attempt(const Block &block, int64_t from, int64_t to,
                    const Lanes *w, const Lanes *carried, const Steps &steps,
                    Rounded &result) const {
  Lanes terms[kMost], sum = {};
  std::copy(carried + from, carried + to, terms + from);
  for (int64_t j = from; j < to; ++j) {
    const float pivot = diagonal(block.at + j);
    result.integers[j] = grid.nearest(w[j] + terms[j] / pivot, steps);
    result.wrong[j] = w[j] - Grid::value(result.integers[j], steps);
    const Lanes term = fma(result.wrong[j], splat(pivot), terms[j]);
    sum = fma(term, term, sum);
    carry(block.at + j, block.at + to, result.wrong[j],
          terms + j / kPanel * kPanel);
  }
  return sum;
}

/// Chooses scales and integers of eight outputs. `carried` has what the errors
/// of columns before the block make of each term.
BlockScales Tile::round(const Block &block, const Lanes *w, Lanes *carried,
                        Rounded &result) const {
  Lanes values[kMost];
  Rounded tried;
  best(block, 0, block.count, w, carried, values);
  BlockScales scales = grid.choose(values, block.importance, block.count);
  const int64_t size = std::min(grid.subBlock(), block.count);
  for (int64_t from = 0; from < block.count; from += size) {
    const int64_t to = from + size, sub = from / size;
    if (from > 0) {
      best(block, from, to, w, carried, values);
      grid.chooseSub(sub, values + from, block.importance + from, scales);
    }
    // Scales for values that are rounded one by one are about the best.
    BlockScales chosen = scales;
    Lanes least = splat(std::numeric_limits<float>::infinity());
    for (const ScaleChange &change : grid.changes()) {
      const BlockScales other = grid.changed(scales, sub, change);
      const Lanes sum =
          attempt(block, from, to, w, carried, grid.steps(other, sub), tried);
      const LaneMask better = sum < least;
      least = better ? sum : least;
      for (int64_t number : {0, 1}) {
        chosen.numbers[number] =
            better ? other.numbers[number] : chosen.numbers[number];
        chosen.subIntegers[number][sub] = better
                                              ? other.subIntegers[number][sub]
                                              : chosen.subIntegers[number][sub];
      }
      for (int64_t j = from; j < to; ++j) {
        result.integers[j] = better ? tried.integers[j] : result.integers[j];
        result.wrong[j] = better ? tried.wrong[j] : result.wrong[j];
      }
    }
    scales = chosen;
    for (int64_t j = from; j < to; ++j)
      carry(block.at + j, block.at + block.count, result.wrong[j],
            carried + j / kPanel * kPanel);
  }
  return scales;
}

Block Tile::blockAt(int64_t at, int64_t first) const {
  Block block = {.at = at,
                 .count = std::min(grid.block(), k - first),
                 .number = first / grid.block(),
                 .importance = {}};
  float most = 0;
  for (int64_t j = 0; j < block.count; ++j)
    most = std::max(most, diagonal(at + j));
  for (int64_t j = 0; j < block.count; ++j) {
    const float part = diagonal(at + j) / most;
    block.importance[j] = splat(part * part);
  }
  return block;
}

void Tile::runBlock(const Block &block, int64_t count) {
  for (int64_t first = 0; first < count; first += kPanel) {
    float carried[kMost * kPanel] = {};
    float *wrongs = errors.data() + first * k;
    for (int64_t j = 0; j < block.count; j += kPanel)
      addPanels(factor.panel((block.at + j) / kPanel), wrongs, block.at,
                carried + j * kPanel, kPanel);
    for (int64_t half = 0; half < kPanel; half += kLanes) {
      Lanes w[kMost], terms[kMost];
      Rounded rounded;
      const int64_t at = block.at * kPanel + half;
      for (int64_t j = 0; j < block.count; ++j) {
        w[j] = load(weights.data() + first * k + at + j * kPanel);
        terms[j] = load(carried + j * kPanel + half);
      }
      const BlockScales scales = round(block, w, terms, rounded);
      for (int64_t i = 0; i < std::min(kLanes, count - first - half); ++i)
        if (const EncodeStatus status = grid.check(scales, i);
            status != EncodeStatus::Ok)
          throw refusal(source, status);
      for (int64_t j = 0; j < block.count; ++j)
        store(rounded.wrong[j], wrongs + at + j * kPanel);
      encoded[(first + half) / kLanes].set(block.number, scales,
                                           rounded.integers, block.count);
    }
  }
}

void Tile::run(int64_t first, int64_t count, Owned &result) {
  read(first, count);
  int64_t at = 0;
  for (int64_t column : factor.blocks()) {
    const Block block = blockAt(at, column);
    runBlock(block, count);
    at += block.count;
  }
  for (int64_t i = 0; i < count; ++i) {
    numerics::EncodeError error;
    for (int64_t j = 0; j < k; ++j) {
      const int64_t place = (i / kPanel * k + j) * kPanel + i % kPanel;
      error += {double{errors[place]} * errors[place],
                double{weights[place]} * weights[place]};
    }
    result.set(first + i, encoded[i / kLanes].output(i % kLanes), error);
  }
}

WeightSourcePtr qwen::makeGptq(const WeightSource &source, WeightFormat format,
                               const InputFactor &factor,
                               const QuantizerOptions &options) {
  constexpr int64_t kOutputs = kPanels * kPanel;
  const int64_t outputs = source.shape().outputs();
  const Grid grid(format);
  auto result = std::make_shared<Owned>(source, options.place, format);
  std::vector<std::unique_ptr<Tile>> tiles(options.threads);
  parallelFor(static_cast<size_t>(ceilDiv(outputs, kOutputs)), options.threads,
              [&](size_t i, unsigned thread) {
                if (!tiles[thread])
                  tiles[thread] = std::make_unique<Tile>(source, grid, factor);
                const int64_t first = static_cast<int64_t>(i) * kOutputs;
                tiles[thread]->run(first, std::min(kOutputs, outputs - first),
                                   *result);
              });
  return result;
}
