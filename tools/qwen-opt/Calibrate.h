//===- Calibrate.h - The command line of a calibration ----------*- C++ -*-===//

#ifndef QWEN_OPT_CALIBRATE_H
#define QWEN_OPT_CALIBRATE_H

#include "calibration/Calibration.h"

#include "CommandLine.h"

#include <cstdint>
#include <functional>
#include <string>

namespace qwen {

/// The flags of a calibration.
struct CalibrateFlags {
  /// The file of the text; empty without a calibration, kNoValue without a
  /// file.
  std::string text;
  uint64_t memory = uint64_t{4} << 30;
  /// Whether channels are scaled.
  bool awq = false;
  /// Steps in which scales learn behind the calibration; 0 for none.
  int64_t distill = 0;
  /// The text of --prune (Prune.h), or empty.
  std::string prune;
};

void addCalibration(const Command &command, CalibrateFlags &flags);

/// The quantizer that the flags ask for: `name`, or if that is empty, the one
/// of a calibration, if there is one. Throws UsageError if they contradict each
/// other.
std::optional<Quantizer> chooseQuantizer(const Command &command,
                                         const CalibrateFlags &flags,
                                         const std::string &name);

/// The text of a file. Throws Error if it cannot be read or is too long.
std::string readTextFile(const std::string &path);

/// The folder in which a calibration for `output` saves finished sublayers.
std::string calibrationFolder(const std::string &output);

/// Returns what gives the windows of the flags' text, or of qwen-opt's own, for
/// the tokenizer of an input. Reads the text at once. Both throw Error, which
/// names `option` if there is no tokenizer.
std::function<CalibrationText(const QuantizeInput &)>
calibrationText(const CalibrateFlags &flags, const std::string &checkpoint,
                const std::string &option);

/// Sets the hooks that run the text, for `--awq` and for a quantizer that needs
/// it. They show their progress. Finished sublayers lie in `folder`, or nowhere
/// if that is empty. `lines` gets lines for the summary. Reads the text at
/// once; throws Error if it cannot.
void addCalibrationHooks(const CalibrateFlags &flags,
                         std::optional<Quantizer> quantizer,
                         const std::string &checkpoint,
                         const std::string &folder,
                         std::vector<std::string> &lines, CompileHooks &hooks);

} // namespace qwen

#endif // QWEN_OPT_CALIBRATE_H
