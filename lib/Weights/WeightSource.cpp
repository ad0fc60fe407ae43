//===- WeightSource.cpp - Where the values of a weight come from ----------===//

#include "qwen/Weights/WeightSource.h"

using namespace qwen;

int64_t WeightShape::outputs() const {
  int64_t count = 1;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (i == 0 || i + 1 < sizes.size())
      count *= sizes[i];
  return count;
}

std::string qwen::shapeText(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (int64_t size : sizes)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

Error qwen::refusal(const WeightSource &source, numerics::EncodeStatus status,
                    int64_t output) {
  return Error(source.nameOf(output) + " " +
               part::found(std::string(numerics::encodeStatusMessage(status))) +
               (status == numerics::EncodeStatus::NotFinite
                    ? ""
                    : "; --weights f32 keeps it as it is"));
}

OutputSet WeightSource::kept(WeightFormat, int64_t, int64_t) const { return 0; }

numerics::EncodeError WeightSource::keep(WeightFormat, int64_t, OutputSet,
                                         int64_t, uint8_t *) const {
  // kept() has no output.
  __builtin_unreachable();
}

const WeightSources::Entry *WeightSources::find(std::string_view name) const {
  const auto found = byName.find(name);
  return found == byName.end() ? nullptr : &found->second;
}
