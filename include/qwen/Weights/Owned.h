//===- Owned.h - Values that the compiler computed --------------*- C++ -*-===//

#ifndef QWEN_WEIGHTS_OWNED_H
#define QWEN_WEIGHTS_OWNED_H

#include "qwen/Numerics/Encode.h"
#include "qwen/Support/Pages.h"
#include "qwen/Weights/WeightSource.h"

#include <optional>

namespace qwen {

/// Floats or integers that the compiler computed: what a rotation or a
/// quantizer makes of another source. All are 0 before they are set.
class Owned final : public WeightSource {
public:
  /// Integers if there is a format, which must be quantized. Throws Error if
  /// there is no room.
  Owned(const std::string &name, WeightShape shape, Place place,
        std::optional<WeightFormat> format = {});
  /// Values computed from `source`. `source` gives the name, shape, form and
  /// bytes to read, which messages and the summary show.
  Owned(const WeightSource &source, Place place,
        std::optional<WeightFormat> format = {});

  /// Sets the floats of `count` outputs from `first` on. Several threads may
  /// set different outputs.
  void set(int64_t first, int64_t count, const float *values);
  /// The floats, one output after another, to compute them in place.
  float *floats() { return pages.as<float>(); }
  /// Sets the integers of an output, the blocks of its K values, and their
  /// error.
  void set(int64_t output, std::span<const numerics::WeightBlock> blocks,
           numerics::EncodeError error = {});

  /// All panels of integers, and their errors by output: to set them again as
  /// they were saved.
  std::span<uint8_t> panels() {
    return {pages.as<uint8_t>(), static_cast<size_t>(pages.bytes())};
  }
  std::span<numerics::EncodeError> outputErrors() { return errors; }

  const WeightShape &shape() const override { return sizes; }
  ErrorText name() const override { return text; }
  std::string_view form() const override { return formName; }
  uint64_t bytesToRead() const override { return readBytes; }
  void read(int64_t first, int64_t count, float *values) const override;
  WeightFormat keptFormat() const override {
    return format.value_or(WeightFormat::F32);
  }
  OutputSet kept(WeightFormat other, int64_t first,
                 int64_t count) const override;
  numerics::EncodeError keep(WeightFormat other, int64_t first,
                             OutputSet outputs, int64_t lane,
                             uint8_t *panel) const override;

private:
  /// The panel of integers that holds `output`.
  uint8_t *panelOf(int64_t output) const;

  const ErrorText text;
  const WeightShape sizes;
  const std::optional<WeightFormat> format;
  /// Rows of floats, or panels.
  const Pages pages;
  const std::string formName;
  const uint64_t readBytes;
  /// The errors of integers, by output.
  std::vector<numerics::EncodeError> errors;
};

} // namespace qwen

#endif // QWEN_WEIGHTS_OWNED_H
