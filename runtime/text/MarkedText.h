//===- MarkedText.h - Text that knows its origin ----------------*- C++ -*-===//
//
// A prompt has characters that a chat template wrote and characters of its
// input, such as the messages. Only the former may make a special token.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_MARKEDTEXT_H
#define QWEN_RUNTIME_TEXT_MARKEDTEXT_H

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// Where a character comes from.
enum class Origin : uint8_t { Template, Input };

/// A text with the origin of each byte.
class MarkedText {
public:
  MarkedText() = default;
  MarkedText(std::string text, Origin origin);

  const std::string &bytes() const { return text; }
  /// Bytes of memory, with the marks.
  size_t memory() const {
    return text.size() + borders.size() * sizeof(uint32_t);
  }

  /// Appends characters of one origin.
  void append(std::string_view characters, Origin origin);
  /// Appends characters that the template writes.
  void write(std::string_view characters) {
    append(characters, Origin::Template);
  }
  void append(const MarkedText &other) { append(other, other.text); }
  /// Appends `part`, which lies in the bytes of `other`.
  void append(const MarkedText &other, std::string_view part);

  /// The text of `part`, which lies in the bytes.
  MarkedText part(std::string_view part) const;
  /// The text with `change(run)` in place of each run of characters of one
  /// origin. The origins stay.
  template <typename Change> MarkedText transform(Change change) const {
    MarkedText result;
    forEachRun(text, [&](std::string_view run, Origin origin) {
      result.append(change(run), origin);
    });
    return result;
  }

  /// Whether the template wrote all bytes from `begin` to before `end`.
  bool isWritten(size_t begin, size_t end) const;

private:
  /// The origin of the bytes after `count` borders.
  Origin originAfter(size_t count) const {
    return (first == Origin::Input) != (count % 2 != 0) ? Origin::Input
                                                        : Origin::Template;
  }
  size_t bordersUpTo(size_t at) const {
    return static_cast<size_t>(std::ranges::upper_bound(borders, at) -
                               borders.begin());
  }
  template <typename Visit>
  void forEachRun(std::string_view part, Visit visit) const {
    auto begin = static_cast<size_t>(part.data() - text.data());
    const size_t end = begin + part.size();
    for (size_t count = bordersUpTo(begin); begin < end; ++count) {
      const size_t next =
          count < borders.size() ? std::min<size_t>(borders[count], end) : end;
      visit(std::string_view(text).substr(begin, next - begin),
            originAfter(count));
      begin = next;
    }
  }

  std::string text;
  /// The origin of the first byte.
  Origin first = Origin::Template;
  /// Offsets at which the origin changes, ascending.
  std::vector<uint32_t> borders;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_MARKEDTEXT_H
