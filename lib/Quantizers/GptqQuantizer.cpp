//===- GptqQuantizer.cpp - Columns that make up for each other's errors ---===//
//
// Frantar et al. 2022, arXiv 2210.17323, with scales that are chosen again
// before each block. InputFactor.h has the objective. Coordinate descent, which
// may follow, lets each column make up for those behind it, too.
//
//===----------------------------------------------------------------------===//

#include "Grid.h"
#include "OutputFeedback.h"
#include "QuantizedSources.h"

#include "qwen/Quantizers/PanelProducts.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace qwen;
using numerics::EncodeStatus;

/// Values of the longest block.
static constexpr int64_t kBlockValues = 256;

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
  /// The importance of its columns: squares of the factor's diagonal, at
  /// most 1.
  Lanes importance[kBlockValues];
};

/// Integers of the columns of a block, and what weights are above their values.
struct Rounded {
  Lanes integers[kBlockValues], wrong[kBlockValues];
};

/// Chooses the integers of some outputs.
class Tile {
public:
  /// `feedback` is null without a factor of the outputs.
  Tile(const WeightSource &source, const Grid &grid, const InputFactor &factor,
       OutputFeedback *feedback)
      : source(source), grid(grid), factor(factor), feedback(feedback),
        k(factor.k()), weights(static_cast<size_t>(kPanels * kPanel * k)),
        errors(weights.size()) {
    for (int64_t i = 0; i < kPanels * kPanel; i += kLanes)
      encoded.emplace_back(grid, k);
  }

  /// Sets the `count` outputs from `first` on, which are a group. With a
  /// feedback and sweeps, they are at most a panel.
  void run(int64_t group, int64_t first, int64_t count, int sweeps,
           Owned &result);

private:
  void read(int64_t first, int64_t count);
  Block blockAt(int64_t at, int64_t first) const;
  void runBlock(const Block &block, int64_t count);
  void addShares(const Block &block, int64_t first, float *shares,
                 float *carried) const;
  void keepTerms(const Block &block, int64_t first, const float *shares,
                 float *carried) const;
  void descend(int64_t count, int sweeps);
  int64_t descendBlock(size_t number, int64_t at, int64_t count);
  void readRow(int64_t column, std::vector<float> &row) const;
  void descendColumn(int64_t column, const float *row, int64_t output,
                     const Steps &steps, Lanes &integer);
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
  OutputFeedback *const feedback;
  const int64_t k;
  /// Its number in the source.
  int64_t firstOutput = 0;
  /// [panel][k][16], with columns in the order of the factor: the weights, and
  /// what they are above their integers' values.
  std::vector<float> weights, errors;
  /// In the same order, what the errors make of the objective's terms.
  std::vector<float> sums;
  /// Each has eight outputs.
  std::vector<EncodedOutputs> encoded;
  /// By block in the order of the factor, of eight outputs each.
  std::vector<BlockScales> chosenScales[kPanels * kPanel / kLanes];
};
} // namespace

void Tile::read(int64_t first, int64_t count) {
  std::vector<float> rows(static_cast<size_t>(kPanel * k));
  for (int64_t done = 0; done < count; done += kPanel) {
    const int64_t some = std::min(kPanel, count - done);
    source.read(first + done, some, rows.data());
    requireFinite(source, first + done,
                  {rows.data(), static_cast<size_t>(some * k)});
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
  Lanes terms[kBlockValues];
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
  Lanes terms[kBlockValues], sum = {};
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
  Lanes values[kBlockValues];
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
    float carried[kBlockValues * kPanel] = {};
    float *wrongs = errors.data() + first * k;
    for (int64_t j = 0; j < block.count; j += kPanel)
      addPanels(factor.panel((block.at + j) / kPanel), wrongs, block.at,
                carried + j * kPanel, kPanel);
    float shares[kBlockValues * kPanel] = {};
    if (feedback)
      addShares(block, first, shares, carried);
    for (int64_t half = 0; half < kPanel; half += kLanes) {
      Lanes w[kBlockValues], carriedTo[kBlockValues];
      Rounded rounded;
      const int64_t at = block.at * kPanel + half;
      for (int64_t j = 0; j < block.count; ++j) {
        w[j] = load(weights.data() + first * k + at + j * kPanel);
        carriedTo[j] = load(carried + j * kPanel + half);
      }
      const BlockScales chosen = round(block, w, carriedTo, rounded);
      for (int64_t i = 0; i < std::min(kLanes, count - first - half); ++i)
        if (const EncodeStatus status = grid.check(chosen, i);
            status != EncodeStatus::Ok)
          throw refusal(source, status, firstOutput + first + half + i);
      for (int64_t j = 0; j < block.count; ++j) {
        store(rounded.wrong[j], wrongs + at + j * kPanel);
        store(carriedTo[j], carried + j * kPanel + half);
      }
      const int64_t group = (first + half) / kLanes;
      encoded[group].set(block.number, chosen, rounded.integers, block.count);
      chosenScales[group].push_back(chosen);
    }
    if (feedback)
      keepTerms(block, first, shares, carried);
  }
}

/// Adds what outputs before the panel from `first` on make of its terms.
void Tile::addShares(const Block &block, int64_t first, float *shares,
                     float *carried) const {
  for (int64_t j = 0; j < block.count; j += kPanel)
    feedback->share(firstOutput + first, block.at + j, shares + j * kPanel);
  for (int64_t i = 0; i < block.count * kPanel; ++i)
    carried[i] += shares[i];
}

/// Keeps the terms of the panel's errors for the outputs behind it.
void Tile::keepTerms(const Block &block, int64_t first, const float *shares,
                     float *carried) const {
  for (int64_t i = 0; i < block.count * kPanel; ++i)
    carried[i] -= shares[i];
  for (int64_t j = 0; j < block.count; j += kPanel)
    feedback->keep(firstOutput + first, block.at + j, carried + j * kPanel);
}

/// Chooses the integer of `column` again for the eight outputs from `output`
/// on, by the terms that all errors make. `row` is the factor's from the panel
/// of the column on, and then the sum of its squares.
void Tile::descendColumn(int64_t column, const float *row, int64_t output,
                         const Steps &steps, Lanes &integer) {
  const int64_t begin = column / kPanel * kPanel, width = k - begin;
  const int64_t offset = output / kPanel * kPanel * k + output % kPanel;
  float *own = sums.data() + offset + begin * kPanel;
  Lanes slope = {};
  for (int64_t i = 0; i < width; ++i)
    slope = fma(load(own + i * kPanel), splat(row[i]), slope);
  float *error = errors.data() + offset + column * kPanel;
  const Lanes weight = load(weights.data() + offset + column * kPanel);
  const Lanes old = load(error);
  // This is the slope of the error's square, which is least where the slope
  // would be 0.
  integer = grid.nearest(weight - old + slope / row[width], steps);
  const Lanes wrong = weight - Grid::value(integer, steps);
  store(wrong, error);
  const Lanes change = wrong - old;
  for (int64_t i = 0; i < width; ++i)
    store(fma(change, splat(row[i]), load(own + i * kPanel)), own + i * kPanel);
}

/// Sets `row` to what descendColumn() reads of the factor.
void Tile::readRow(int64_t column, std::vector<float> &row) const {
  row.clear();
  for (int64_t i = column / kPanel; i < k / kPanel; ++i) {
    const float *from = factor.panel(i) + column * kPanel;
    row.insert(row.end(), from, from + kPanel);
  }
  float square = 0;
  for (float value : row)
    square = std::fma(value, value, square);
  row.push_back(square);
}

/// Chooses the integers of block `number`, which has `at` columns before it,
/// again. Returns the number of its columns.
int64_t Tile::descendBlock(size_t number, int64_t at, int64_t count) {
  const int64_t first = factor.blocks()[number],
                groups = ceilDiv(count, kLanes);
  const int64_t columns = std::min(grid.block(), k - first);
  std::vector<float> row;
  std::vector<Lanes> integers(static_cast<size_t>(groups * columns));
  for (int64_t j = 0; j < columns; ++j) {
    readRow(at + j, row);
    for (int64_t group = 0; group < groups; ++group)
      descendColumn(
          at + j, row.data(), group * kLanes,
          grid.steps(chosenScales[group][number], j / grid.subBlock()),
          integers[group * columns + j]);
  }
  for (int64_t group = 0; group < groups; ++group)
    encoded[group].set(first / grid.block(), chosenScales[group][number],
                       integers.data() + group * columns, columns);
  return columns;
}

void Tile::descend(int64_t count, int sweeps) {
  sums.assign(errors.size(), 0.0f);
  // The outputs before the panel, which is one then, do not change any more.
  for (int64_t j = 0; feedback && j < k; j += kPanel)
    feedback->share(firstOutput, j, sums.data() + j * kPanel);
  for (int64_t first = 0; first < count; first += kPanel)
    for (int64_t j = 0; j < k; j += kPanel)
      addPanels(factor.panel(j / kPanel), errors.data() + first * k, j + kPanel,
                sums.data() + first * k + j * kPanel, kPanel);
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (int64_t at = 0, number = 0; at < k; ++number)
      at += descendBlock(static_cast<size_t>(number), at, count);
  for (int64_t j = 0; feedback && j < k; j += kPanel) {
    float shares[kPanel * kPanel] = {}, terms[kPanel * kPanel];
    feedback->share(firstOutput, j, shares);
    for (int64_t i = 0; i < kPanel * kPanel; ++i)
      terms[i] = sums[static_cast<size_t>(j * kPanel + i)] - shares[i];
    feedback->keep(firstOutput, j, terms);
  }
}

void Tile::run(int64_t group, int64_t first, int64_t count, int sweeps,
               Owned &result) {
  firstOutput = first;
  read(first, count);
  for (std::vector<BlockScales> &list : chosenScales)
    list.clear();
  int64_t at = 0, done = 0;
  for (int64_t column : factor.blocks()) {
    const Block block = blockAt(at, column);
    // Descent changes all blocks of the outputs before these.
    if (feedback)
      feedback->await(group, sweeps > 0 ? std::ssize(factor.blocks()) : ++done);
    runBlock(block, count);
    at += block.count;
    if (feedback && sweeps == 0)
      feedback->finish(group, done);
  }
  if (sweeps > 0)
    descend(count, sweeps);
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

namespace {
/// Nobody waits for a group that has ended, even by an exception.
struct FinishGroup {
  OutputFeedback *feedback;
  int64_t group;
  ~FinishGroup() {
    if (feedback)
      feedback->finish(group, std::numeric_limits<int64_t>::max());
  }
};
} // namespace

WeightSourcePtr qwen::makeGptq(const WeightSource &source, WeightFormat format,
                               const QuantizerFactors &factors, int sweeps,
                               const QuantizerOptions &options) {
  const int64_t together =
      factors.outputs && sweeps > 0 ? kPanel : kPanels * kPanel;
  const int64_t outputs = source.shape().outputs();
  const Grid grid(format);
  auto result = std::make_shared<Owned>(source, options.place, format);
  std::vector<std::unique_ptr<Tile>> tiles(options.threads);
  const int64_t groups = ceilDiv(outputs, together);
  std::optional<OutputFeedback> feedback;
  if (factors.outputs)
    feedback.emplace(*factors.outputs, factors.inputs->k(), groups);
  parallelFor(
      static_cast<size_t>(groups), options.threads,
      [&](size_t i, unsigned thread) {
        const auto group = static_cast<int64_t>(i);
        const FinishGroup finish = {feedback ? &*feedback : nullptr, group};
        if (!tiles[thread])
          tiles[thread] = std::make_unique<Tile>(
              source, grid, *factors.inputs, feedback ? &*feedback : nullptr);
        const int64_t first = group * together;
        tiles[thread]->run(group, first, std::min(together, outputs - first),
                           sweeps, *result);
      });
  return result;
}
