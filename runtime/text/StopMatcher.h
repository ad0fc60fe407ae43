//===- StopMatcher.h - Strings that end a text ------------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TEXT_STOPMATCHER_H
#define QWEN_RUNTIME_TEXT_STOPMATCHER_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Finds the string that ends a text. The one that ends first wins; of those,
/// the longest.
class StopMatcher {
public:
  /// `stopStrings` must outlive the matcher; none may be empty. With
  /// `includeStop`, the one that is found belongs to the text.
  StopMatcher(const std::vector<std::string> &stopStrings, bool includeStop)
      : stops(stopStrings), isIncluded(includeStop) {}

  /// The text goes on. Returns what is final of it: what may begin a stop
  /// string is held back, and what follows one is dropped.
  std::string push(std::string_view text);
  /// Returns what was held back. No stop string begins in it.
  std::string finish();

  /// The stop string that ended the text.
  const std::optional<std::string> &found() const { return foundStop; }
  /// Number of characters that are held back, or that were dropped by the last
  /// push.
  int64_t heldCharacters() const { return characters; }

private:
  const std::vector<std::string> &stops;
  const bool isIncluded;
  std::string held;
  int64_t characters = 0;
  std::optional<std::string> foundStop;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_STOPMATCHER_H
