//===- HeldOutWindows.h - Held-out windows of a text ------------*- C++ -*-===//

#ifndef QWEN_CALIBRATION_HELDOUTWINDOWS_H
#define QWEN_CALIBRATION_HELDOUTWINDOWS_H

#include "calibration/Calibration.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qwen {

/// The windows that choose integers for each one that is held out.
inline constexpr int64_t kHeldOutWindows = 8;

/// A calibration text in two sets of windows: a model learns from one set, and
/// the held-out set measures the model.
struct DividedText {
  /// The windows that choose integers, and then some of the text's rest.
  std::vector<int32_t> ids;
  /// Tokens of a window.
  int64_t window;
  /// Numbers of windows in `ids`.
  std::vector<int64_t> learned, heldOut;

  std::span<const int32_t> idsOf(int64_t number) const {
    return std::span(ids).subspan(static_cast<size_t>(number * window),
                                  static_cast<size_t>(window));
  }
  /// The tokens of these windows, one window after another.
  std::vector<int32_t> idsOf(std::span<const int64_t> numbers) const;
};

/// Divides `text`. The held-out windows come from its rest, because integers
/// fit the windows that chose them. The model learns from up to `more` other
/// windows of the rest, too. If the rest is too short, each eighth
/// (kHeldOutWindows) window of the calibration is held out instead. A text of
/// fewer windows has no held-out one.
DividedText holdOut(const CalibrationText &text, int64_t more = 0);

} // namespace qwen

#endif // QWEN_CALIBRATION_HELDOUTWINDOWS_H
