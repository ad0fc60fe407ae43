//===- Owned.cpp - Values that the compiler computed ----------------------===//

#include "qwen/Weights/Owned.h"

#include "qwen/Numerics/Kernels.h"

#include <cstring>

using namespace qwen;

static uint64_t bytesOf(const WeightShape &shape,
                        std::optional<WeightFormat> format) {
  return static_cast<uint64_t>(
      format ? packedBytes(*format, shape.outputs(), shape.k())
             : shape.values() * static_cast<int64_t>(sizeof(float)));
}

Owned::Owned(const std::string &name, WeightShape shape, Place place,
             std::optional<WeightFormat> format)
    : text(name), sizes(std::move(shape)), format(format),
      pages(bytesOf(sizes, format), place, name),
      formName(format ? weightFormatName(*format) : "computed floats"),
      readBytes(pages.bytes()),
      errors(format ? static_cast<size_t>(sizes.outputs()) : 0) {}

Owned::Owned(const WeightSource &source, Place place,
             std::optional<WeightFormat> format)
    : text(source.name()), sizes(source.shape()), format(format),
      pages(bytesOf(sizes, format), place, text.line()),
      formName(source.form()), readBytes(source.bytesToRead()),
      errors(format ? static_cast<size_t>(sizes.outputs()) : 0) {}

uint8_t *Owned::panelOf(int64_t output) const {
  return pages.as<uint8_t>() +
         output / kPanelOutputs * panelBytes(*format, sizes.k());
}

void Owned::set(int64_t first, int64_t count, const float *values) {
  const int64_t k = sizes.k();
  std::memcpy(pages.as<float>() + first * k, values,
              static_cast<size_t>(count * k) * sizeof(float));
}

void Owned::set(int64_t output, std::span<const numerics::WeightBlock> blocks,
                numerics::EncodeError error) {
  errors[static_cast<size_t>(output)] = error;
  numerics::putOutput(*format, blocks.data(), sizes.k(), output % kPanelOutputs,
                      panelOf(output));
}

void Owned::read(int64_t first, int64_t count, float *values) const {
  const int64_t k = sizes.k();
  if (!format) {
    std::memcpy(values, pages.as<float>() + first * k,
                static_cast<size_t>(count * k) * sizeof(float));
    return;
  }
  auto *decode = numerics::reference<KernelOp::Embed>(kernelFormat(*format));
  for (int64_t i = 0; i < count; ++i)
    decode(pages.as<uint8_t>(), static_cast<int32_t>(first + i), k,
           values + i * k);
}

OutputSet Owned::kept(WeightFormat other, int64_t, int64_t count) const {
  return other == format ? (OutputSet{1} << count) - 1 : 0;
}

numerics::EncodeError Owned::keep(WeightFormat other, int64_t first,
                                  OutputSet outputs, int64_t lane,
                                  uint8_t *panel) const {
  numerics::EncodeError error;
  for (int64_t i = 0; outputs >> i != 0; ++i)
    if ((outputs >> i & 1) != 0) {
      numerics::copyOutput(other, sizes.k(), panelOf(first + i),
                           (first + i) % kPanelOutputs, panel, lane + i);
      error += errors[static_cast<size_t>(first + i)];
    }
  return error;
}
