//===- JsonScanner.h - A JSON value that comes in pieces --------*- C++ -*-===//

#ifndef QWEN_RUNTIME_TEXT_JSONSCANNER_H
#define QWEN_RUNTIME_TEXT_JSONSCANNER_H

#include <cstdint>
#include <string>
#include <string_view>

namespace qwen {

/// Reads one JSON value as a model writes it. What it passes on is JSON: in
/// strings, control characters and backslashes that begin no escape become
/// escapes, and halves of surrogate pairs U+FFFD.
class JsonScanner {
public:
  /// Nested arrays and objects, at most.
  static constexpr size_t kMostDepth = 64;

  /// Reads `text`, which is UTF-8, up to the end of the value or to a byte that
  /// is not JSON, and appends what it has of the value to `out`. Returns the
  /// number of bytes that it has read.
  size_t push(std::string_view text, std::string &out);
  /// Ends a number or a word, behind which nothing comes. Appends it to `out`,
  /// and whatever else was held back.
  void finish(std::string &out);

  bool isDone() const { return state == State::Done; }
  /// Whether the text is not JSON.
  bool isBad() const { return state == State::Bad; }
  bool isInString() const { return state >= State::String; }

private:
  enum class State : uint8_t {
    Value,
    /// After "[" and "{".
    FirstElement,
    FirstKey,
    Key,
    Colon,
    /// After a value in an array or object.
    After,
    /// In a number or a word.
    Word,
    Done,
    Bad,
    /// In a string; after a backslash; in the digits after "\u".
    String,
    Escape,
    Hex,
  };

  /// Takes the next byte. Returns whether it belongs to the value.
  bool take(char byte, std::string &out);
  bool takeValue(char byte, std::string &out);
  bool takeInString(char byte, std::string &out);
  bool takeEscape(char byte, std::string &out);
  bool takeHex(char byte, std::string &out);
  bool takeAfter(char byte, std::string &out);
  bool open(char byte, State next, std::string &out);
  bool close(char byte, std::string &out);
  bool fail();
  void endValue();
  void endWord(std::string &out);
  /// Passes on half of a surrogate pair whose other half does not come.
  void passHalf(std::string &out);

  State state = State::Value;
  /// The brackets that are open.
  std::string brackets;
  /// Whether the string is a key.
  bool isKey = false;
  /// A number or word, or the digits after "\u", so far.
  std::string word;
  /// The digits of the first half of a surrogate pair.
  std::string half;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_JSONSCANNER_H
