//===- MatrixSample.h - What a matrix loses in a format ---------*- C++ -*-===//
//
// Errors E of a product's weights cost a model about 1/2 tr(H_out E H_in E^T),
// of the second moments of the product's inputs and of the gradients by its
// outputs (docs/decisions/0040-gradients.md). Some outputs are quantized, in
// each format that a search considers, and stand for all.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_QUANTIZERS_MATRIXSAMPLE_H
#define QWEN_QUANTIZERS_MATRIXSAMPLE_H

#include "qwen/Quantizers/InputFactor.h"
#include "qwen/Weights/WeightSource.h"

#include <memory>
#include <span>
#include <vector>

namespace qwen {

/// Some outputs of a matrix, which are spread over it.
class MatrixSample {
public:
  /// At most so many outputs: as many as gptq chooses together.
  static constexpr int64_t kOutputs = 64;

  /// Reads all of `source`, a matrix.
  explicit MatrixSample(WeightSourcePtr source);

  /// The errors that a quantizer leaves in the sampled outputs: rows [k]. The
  /// quantizer is gptq with `factor`, which has the blocks of `format`, or the
  /// search if `factor` is null, by `columns` (QuantizerFactors) if there are
  /// any. Throws Error where quantize() does.
  std::vector<float>
  errors(WeightFormat format, const InputFactor *factor,
         std::shared_ptr<const std::vector<float>> columns = nullptr) const;

  /// What the errors cost, of all outputs, by moments of the inputs. `outputs`
  /// has how much each output counts. `factor` is of `moments` with `damping`,
  /// and has the blocks in whose order it is computed.
  double cost(std::span<const float> errors, std::span<const double> outputs,
              const InputMoments &moments, const InputFactor &factor,
              double damping) const;
  /// The same if columns count for themselves, as much as `columns` says.
  double cost(std::span<const float> errors, std::span<const double> outputs,
              std::span<const double> columns) const;

  /// The sampled weights themselves, as if they were errors.
  const std::vector<float> &weights() const { return values; }
  int64_t outputs() const { return source->shape().outputs(); }

private:
  /// The sum over all outputs. The sampled ones cost `costs`; the others cost
  /// in proportion to their weight and the squares of their values.
  double extrapolate(std::span<const double> costs,
                     std::span<const double> outputs) const;

  const WeightSourcePtr source;
  std::vector<int64_t> numbers;
  WeightSourcePtr sampled;
  /// [sampled output][k].
  std::vector<float> values;
  /// The squares of each output's values.
  std::vector<double> squares;
};

} // namespace qwen

#endif // QWEN_QUANTIZERS_MATRIXSAMPLE_H
