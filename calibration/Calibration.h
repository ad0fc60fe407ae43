//===- Calibration.h - Integers that a text chooses -------------*- C++ -*-===//
//
// Runs a calibration text through a model and lets a quantizer choose the
// integers of its matrices by what their products read
// (docs/decisions/0018-quantizers.md).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_CALIBRATION_CALIBRATION_H
#define QWEN_CALIBRATION_CALIBRATION_H

#include "qwen/Compiler/Compiler.h"
#include "qwen/Quantizers/Quantizers.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Tokens of a window, which is a sequence of its own; fewer if the model has
/// fewer positions.
inline constexpr int64_t kCalibrationWindow = 512;
/// The tokens of a text that are run, and the fewest that a text must have:
/// twice as many gain nothing (issue 36).
inline constexpr int64_t kCalibrationTokens = 32768,
                         kLeastCalibrationTokens = 4096;
/// An expert that fewer tokens of the text choose is quantized by the search:
/// moments would tell of these tokens alone.
inline constexpr int64_t kLeastExpertTokens = 128;

struct CalibrationText {
  /// Whole windows.
  std::vector<int32_t> ids;
  int64_t window;
  /// SHA-256 of the texts, in hexadecimal digits.
  std::string hash;
  /// Whole windows behind these, as many at most. They choose no integers.
  std::vector<int32_t> rest = {};

  /// The number of windows that choose integers.
  int64_t windows() const { return std::ssize(ids) / window; }
};

/// The first windows of `texts` for a model of `positions`, of each in
/// proportion to its length: a window is of one text. Special tokens are read
/// where the tokenizer has them. Throws Error, which begins with `name`, if
/// there are too few tokens.
CalibrationText readCalibrationText(const TokenizerImport &tokenizer,
                                    std::span<const std::string_view> texts,
                                    int64_t positions, const std::string &name);

struct CalibrationOptions {
  /// Bytes beyond which moments and rows lie in a temporary file.
  uint64_t memory = uint64_t{4} << 30;
  /// Where finished sublayers are saved, so that a run that was killed goes on;
  /// empty for nowhere.
  std::filesystem::path folder = {};
  unsigned threads = machineThreads();
  /// Receives lines about memory and about saved sublayers.
  std::function<void(const std::string &line)> note = {};
  /// Receives the part of the work that is done.
  ProgressFn progress = {};
  /// Receives the rows before the head [tokens][hidden size], before a weight
  /// is replaced. Only a model whose ops all have backward passes has them.
  std::function<void(std::span<const float> rows)> lastRows = {};
};

/// Quantizes the matrices of `input` that products read. Replaces their
/// sources. The same input gives the same integers, whatever the other options
/// are. Throws Error.
void calibrate(const QuantizeInput &input, const CalibrationText &text,
               const CalibrationOptions &options);

/// Scales the channels that matrices of `input.formats` read, so that rounding
/// loses less (ChannelScales.h): after a norm, a feed-forward network's product
/// with its gate, and the attention's values. What makes a channel is divided
/// by its scale, what reads it multiplied: the model's function stays. Replaces
/// the sources. A model that will be rotated gets no scales after norms, which
/// a rotation would undo. The number of threads changes no bit. Throws Error.
void scaleChannels(const QuantizeInput &input, const CalibrationText &text,
                   unsigned threads = machineThreads(),
                   const ProgressFn &progress = {});

/// Removes what `calibrate` saved. Keeps files of others, and then the folder.
void removeSavedCalibration(const std::filesystem::path &folder);

} // namespace qwen

#endif // QWEN_CALIBRATION_CALIBRATION_H
