//===- Quantization.h - How the integers of a model were chosen -*- C++ -*-===//
//
// The compiler writes it into the manifest ("quantization" in
// docs/artifact.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_ABI_QUANTIZATION_H
#define QWEN_ABI_QUANTIZATION_H

#include "qwen/Support/Fact.h"

#include <cstdint>
#include <string>

namespace qwen {

/// How scales learned behind a calibration; by default they did not.
struct DistilledScales {
  /// Steps whose scales the model has, and the tokens of the calibration text
  /// that these steps ran.
  int64_t steps = 0, tokens = 0;

  bool operator==(const DistilledScales &) const = default;
};

/// By default the integers are the checkpoint's or rounded, and no matrix is
/// turned.
struct Quantization {
  /// The name of a row of Quantizers.def.
  std::string quantizer = "rtn";
  bool rotated = false;
  /// Whether channels were scaled by their activations.
  bool awq = false;
  /// Tokens of the calibration text that were run, and the SHA-256 of the
  /// text; 0 and empty without one.
  int64_t tokens = 0;
  std::string text = {};
  DistilledScales distilled = {};

  /// "gptq, rotated, 512 tokens of the text with SHA-256 5d41402abc4b...,
  /// scales of 48 steps of distillation over 24576 tokens".
  std::string describe() const;
  bool operator==(const Quantization &) const = default;
};

/// The keys of the manifest beside "quantizer", "text" and "distilled".
inline constexpr Fact<Quantization> kQuantizationFacts[] = {
    {"rotated", &Quantization::rotated},
    {"awq", &Quantization::awq},
    {"tokens", &Quantization::tokens, 0, 0x1p40}};

/// The keys of "distilled", which only a model with such scales has.
inline constexpr Fact<DistilledScales> kDistilledFacts[] = {
    {"steps", &DistilledScales::steps, 1, 0x1p40},
    {"tokens", &DistilledScales::tokens, 1, 0x1p40}};

} // namespace qwen

#endif // QWEN_ABI_QUANTIZATION_H
