//===- HeldOutWindows.cpp - Held-out windows of a text --------------------===//

#include "calibration/HeldOutWindows.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace qwen;

std::vector<int32_t>
DividedText::idsOf(std::span<const int64_t> numbers) const {
  std::vector<int32_t> all;
  all.reserve(numbers.size() * static_cast<size_t>(window));
  for (int64_t number : numbers)
    llvm::append_range(all, idsOf(number));
  return all;
}

DividedText qwen::holdOut(const CalibrationText &text, int64_t more) {
  DividedText result = {text.ids, text.window, {}, {}};
  const int64_t chosen = text.windows(), held = chosen / kHeldOutWindows,
                others =
                    std::min(std::ssize(text.rest) / text.window, held + more);
  const bool hasOthers = held > 0 && others >= held;
  if (hasOthers)
    llvm::append_range(
        result.ids,
        std::span(text.rest).first(static_cast<size_t>(others * text.window)));
  const int64_t first = hasOthers ? chosen : 0,
                distance = hasOthers ? others / held : kHeldOutWindows;
  for (int64_t i = 0; i < std::ssize(result.ids) / text.window; ++i) {
    const bool isHeld = std::ssize(result.heldOut) < held && i >= first &&
                        (i - first) % distance == distance - 1;
    (isHeld ? result.heldOut : result.learned).push_back(i);
  }
  return result;
}
