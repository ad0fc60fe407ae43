//===- Sources.h - Sources that are no form of a checkpoint -----*- C++ -*-===//
//
// Values that the compiler computes, and values of other sources. Forms.h has
// the forms that tensors of a checkpoint have.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_WEIGHTS_SOURCES_H
#define QWEN_WEIGHTS_SOURCES_H

#include "qwen/Numerics/Math.h"
#include "qwen/Weights/WeightSource.h"

#include <optional>

namespace qwen {

/// The `count` inverse frequencies of a rotary embedding of 2 * count values:
/// ropeInvFreq, or yarnInvFreq. With several axes, which divide `count`, each
/// has the frequencies of an embedding of 2 * count / axes values.
WeightSourcePtr makeFrequencies(double theta, const std::optional<Yarn> &yarn,
                                int64_t count, int64_t axes = 1);

/// What the compiler computes of each value: f32(1 + x), exp(x) of
/// docs/numerics.md, or -x.
enum class ValueMap : uint8_t { PlusOne, Exp, Negate };

/// A source that applies `map` to each finite value of `source`. It does not
/// change other values.
WeightSourcePtr makeMapped(WeightSourcePtr source, ValueMap map);

/// The map of the weights whose names end with `suffix`.
struct NamedMap {
  std::string_view suffix;
  ValueMap map;
};
/// Maps the values of these weights.
void mapValues(WeightSources &sources, std::span<const NamedMap> maps);

/// What is folded into a weight; a vector has outputs alone. Empty: nothing.
struct ChannelScales {
  /// Each column is multiplied by its scale, each output divided by its own.
  std::vector<float> columns, outputs;
};
/// `source` with scales: it has no integers.
WeightSourcePtr makeScaled(WeightSourcePtr source, ChannelScales scales);

/// The outputs of `source` with these numbers, in this order: a matrix of its
/// K, or a vector if it is one.
WeightSourcePtr makeOutputs(WeightSourcePtr source,
                            std::vector<int64_t> numbers);

/// The `count` columns of the matrix `source` from `first` on. It has no
/// integers: blocks of them may lie across the border.
WeightSourcePtr makeColumns(WeightSourcePtr source, int64_t first,
                            int64_t count);

/// `source` with zeros behind the outputs and the columns that it lacks of
/// `shape`, whose products and sums they do not change. It has no integers.
WeightSourcePtr makePadded(WeightSourcePtr source, WeightShape shape);

/// The numbers first, first + 1, ... for makeOutputs.
std::vector<int64_t> outputsFrom(int64_t first, int64_t count);

/// The matrices `sources`, which have one shape, one after another: [number of
/// them, outputs, K]. Sources of integers that have several formats are kept in
/// q8_0, which holds the integers of most of them.
WeightSourcePtr makeStacked(std::vector<WeightSourcePtr> sources);

/// Outputs `first` to `first` + `count` of each matrix of `source`, which is
/// [matrices, outputs, K].
WeightSourcePtr makeSlices(WeightSourcePtr source, int64_t first,
                           int64_t count);

/// Gives the matrix `reader` its columns in the order of its integers
/// (WeightSource::columnOrder), if that is another order. The outputs of the
/// matrices `writers`, which `reader` reads, get the same order.
void orderInputs(WeightSources &sources, const std::string &reader,
                 std::span<const std::string> writers);

/// `source`, or its values in q8_0 if its integers have another order of
/// columns than the model, in which all products read them.
WeightSourcePtr inModelOrder(WeightSourcePtr source);

/// Some outputs of a weight, under a name of their own.
struct NamedOutputs {
  std::string name;
  int64_t outputs;
};
/// Adds q, k and v, whose outputs follow each other in `fused`. Throws Error if
/// that has another number of outputs.
void addProjections(WeightSources &sources, const WeightSources::Entry &fused,
                    std::span<const NamedOutputs, 3> projections);

} // namespace qwen

#endif // QWEN_WEIGHTS_SOURCES_H
