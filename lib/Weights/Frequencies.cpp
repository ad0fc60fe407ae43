//===- Frequencies.cpp - Frequencies of the rotary embedding --------------===//

#include "qwen/Weights/Sources.h"

using namespace qwen;

namespace {
class FrequenciesSource final : public WeightSource {
public:
  FrequenciesSource(double theta, const std::optional<numerics::Yarn> &yarn,
                    int64_t count)
      : sizes{{count}}, theta(theta), yarn(yarn) {}

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return "the rotary embedding"; }
  std::string_view form() const override { return "frequencies"; }
  uint64_t bytesToRead() const override { return 0; }

  void read(int64_t first, int64_t count, float *values) const override {
    const int64_t size = 2 * sizes.values();
    for (int64_t i = 0; i < count; ++i)
      values[i] = yarn ? numerics::yarnInvFreq(theta, first + i, size, *yarn)
                       : numerics::ropeInvFreq(theta, first + i, size);
  }

private:
  const WeightShape sizes;
  const double theta;
  const std::optional<numerics::Yarn> yarn;
};
} // namespace

WeightSourcePtr qwen::makeFrequencies(double theta,
                                      const std::optional<numerics::Yarn> &yarn,
                                      int64_t count) {
  return std::make_shared<FrequenciesSource>(theta, yarn, count);
}
