//===- InputFactor.h - What quantizers need of moments ----------*- C++ -*-===//

#ifndef QWEN_QUANTIZERS_INPUTFACTOR_H
#define QWEN_QUANTIZERS_INPUTFACTOR_H

#include "qwen/Quantizers/InputMoments.h"

#include <span>
#include <vector>

namespace qwen {

/// The part of the mean of the moments' diagonal that is added to it, so that
/// rare inputs do not rule (Frantar et al. 2022, arXiv 2210.17323).
inline constexpr double kDamping = 0.01;
/// The same for a tied embedding, whose rows are looked up, too.
inline constexpr double kTiedDamping = 0.3;

/// The same for the gradients by a product's outputs.
inline constexpr double kOutputDamping = 1.0;

/// The upper triangular R with R R^T = H, the damped moments of a product's
/// inputs with their columns in another order. An error e of an output's
/// weights costs |e R|^2, whose term j depends on the errors of columns up to
/// j: so a quantizer chooses column after column. (Frantar et al. use R^-1, the
/// factor of H^-1: the same choices, with an inverse more.)
///
/// Blocks of columns are in falling order of the sum of their diagonal;
/// columns stay in order within a block, because they share scales.
class InputFactor {
public:
  /// Damping is doubled until f32 can hold the factor. Throws Error if there is
  /// no room for bytesFor(k), or if moments are not finite. Takes as much again
  /// while it computes.
  InputFactor(const InputMoments &moments, double damping, int64_t block,
              unsigned threads, Place place = Place::Memory);

  static uint64_t bytesFor(int64_t k) { return InputMoments::bytesFor(k); }

  int64_t k() const { return size; }
  /// Columns of a block; the last of the model's columns may be fewer.
  int64_t block() const { return blockSize; }
  /// The first column of each block, in the order of the factor.
  std::span<const int64_t> blocks() const { return firsts; }

  /// Sixteen columns of R, from 16 * i on in its order: 16 values of each of
  /// the rows 0 to 16 * i + 15.
  const float *panel(int64_t i) const {
    return pages.as<float>() + i * 16 * size;
  }

private:
  int64_t size, blockSize;
  std::vector<int64_t> firsts;
  Pages pages;
};

} // namespace qwen

#endif // QWEN_QUANTIZERS_INPUTFACTOR_H
