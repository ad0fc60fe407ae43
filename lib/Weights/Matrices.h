//===- Matrices.h - Outputs matrix by matrix --------------------*- C++ -*-===//

#ifndef QWEN_LIB_WEIGHTS_MATRICES_H
#define QWEN_LIB_WEIGHTS_MATRICES_H

#include <algorithm>
#include <cstdint>

namespace qwen {

/// Divides `count` outputs of a weight, from `first` on, by its matrices, which
/// have `size` outputs each. Calls visit(matrix, output, run, done) for each
/// matrix: `run` outputs from its own output `output` on, after `done` outputs
/// of matrices before it.
template <typename Visit>
void forMatrices(int64_t size, int64_t first, int64_t count, Visit visit) {
  for (int64_t done = 0, run = 0; done < count; done += run) {
    const int64_t output = (first + done) % size;
    run = std::min(count - done, size - output);
    visit((first + done) / size, output, run, done);
  }
}

} // namespace qwen

#endif // QWEN_LIB_WEIGHTS_MATRICES_H
