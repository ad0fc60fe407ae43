//===- Pattern.h - Regular expressions of users -----------------*- C++ -*-===//

#ifndef QWEN_SUPPORT_PATTERN_H
#define QWEN_SUPPORT_PATTERN_H

#include "qwen/Support/Error.h"

#include <memory>
#include <string_view>

namespace re2 {
class RE2;
} // namespace re2

namespace qwen {

/// A regular expression of a file or an option, in the syntax of RE2, which
/// matches in time linear in the name.
class Pattern {
public:
  /// Throws Error, which begins with `owner`, for other text; also for
  /// look-around and back-references, which RE2 lacks.
  Pattern(std::string_view text, const ErrorText &owner);
  Pattern(Pattern &&) noexcept;
  ~Pattern();

  bool matchesStart(std::string_view name) const;
  bool matchesWhole(std::string_view name) const;
  bool matchesPart(std::string_view name) const;

private:
  std::unique_ptr<const re2::RE2> regex;
};

} // namespace qwen

#endif // QWEN_SUPPORT_PATTERN_H
