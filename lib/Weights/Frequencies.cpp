//===- Frequencies.cpp - Frequencies of the rotary embedding --------------===//

#include "qwen/Weights/Sources.h"

using namespace qwen;

namespace {
class FrequenciesSource final : public WeightSource {
public:
  FrequenciesSource(double theta, const std::optional<Yarn> &yarn,
                    int64_t count, int64_t axes)
      : sizes{{count}}, ofAxis(count / axes), theta(theta), yarn(yarn) {}

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return "the rotary embedding"; }
  std::string_view form() const override { return "frequencies"; }
  uint64_t bytesToRead() const override { return 0; }

  void read(int64_t first, int64_t count, float *values) const override {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t number = (first + i) % ofAxis;
      values[i] = yarn ? numerics::yarnInvFreq(theta, number, 2 * ofAxis, *yarn)
                       : numerics::ropeInvFreq(theta, number, 2 * ofAxis);
    }
  }

private:
  const WeightShape sizes;
  /// Frequencies of an axis.
  const int64_t ofAxis;
  const double theta;
  const std::optional<Yarn> yarn;
};
} // namespace

WeightSourcePtr qwen::makeFrequencies(double theta,
                                      const std::optional<Yarn> &yarn,
                                      int64_t count, int64_t axes) {
  return std::make_shared<FrequenciesSource>(theta, yarn, count, axes);
}
