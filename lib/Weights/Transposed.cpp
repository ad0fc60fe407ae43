//===- Transposed.cpp - Matrices that lie by columns ----------------------===//

#include "qwen/Weights/Transposed.h"

#include "Matrices.h"
#include "TensorChecks.h"

#include <vector>

using namespace qwen;

namespace {
class TransposedSource final : public WeightSource {
public:
  explicit TransposedSource(const StoredTensor &from)
      : tensor(from), sizes{{from.shape[0], from.shape[2], from.shape[1]}} {}

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return describeTensor(tensor); }
  std::string_view form() const override {
    return storedTypeName(*tensor.type);
  }
  uint64_t bytesToRead() const override { return tensor.bytes.size(); }
  std::optional<StoredType> floatType() const override { return tensor.type; }
  WeightFormat keptFormat() const override { return infoOf(*tensor.type).kept; }

  void read(int64_t first, int64_t count, float *values) const override {
    const int64_t outputs = sizes.sizes[1], k = sizes.k();
    std::vector<float> column;
    forMatrices(outputs, first, count,
                [&](int64_t matrix, int64_t output, int64_t run, int64_t done) {
                  column.resize(static_cast<size_t>(run));
                  for (int64_t i = 0; i < k; ++i) {
                    readFloats(tensor, (matrix * k + i) * outputs + output, run,
                               column.data());
                    for (int64_t j = 0; j < run; ++j)
                      values[(done + j) * k + i] =
                          column[static_cast<size_t>(j)];
                  }
                });
  }

private:
  const StoredTensor tensor;
  const WeightShape sizes;
};
} // namespace

WeightSourcePtr qwen::makeTransposed(const StoredTensor &tensor) {
  return std::make_shared<TransposedSource>(tensor);
}
