//===- JsonText.h - What of JSON a grammar cannot count ---------*- C++ -*-===//
//
// Follows the JSON of an answer, token by token, and takes away tokens that a
// grammar allows because it is context-free: a second name of the same object,
// and digits without an end.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_GRAMMAR_JSONTEXT_H
#define QWEN_RUNTIME_GRAMMAR_JSONTEXT_H

#include "text/Tokenizer.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace qwen {

/// The maximum number of digits of a number, unless the schema allows no fewer:
/// models repeat digits until the answer is full. An integer of 64 bits needs
/// 20, and a double needs 17.
struct DigitLimits {
  static constexpr size_t kInteger = 20, kFraction = 17, kExponent = 3;
};

/// A JSON text up to some byte of it. What is not JSON is undefined.
class JsonText {
public:
  enum class Fit : uint8_t {
    Yes,
    /// A number has too many digits.
    LongNumber,
    /// An object has a name twice, or a name has an escape for a character that
    /// needs none, which would be another text of the same name.
    SameName,
  };
  enum class Place : uint8_t { Between, Name, String, Number };

  /// Goes on with `bytes`, and returns what of them is the first that does not
  /// fit.
  Fit push(std::string_view bytes);
  /// Makes copies cheap: one that is dropped soon shares what has come so far.
  void settle();
  Place place() const { return where; }
  /// Whether an escape has begun.
  bool isInEscape() const { return isEscape || hexLeft > 0; }

private:
  using Names = std::unordered_set<std::string>;
  struct Level {
    bool isObject, hasNameNext;
    /// Names of the object before `settle`, which copies share, and since.
    std::shared_ptr<Names> names = nullptr;
    std::vector<std::string> more = {};
  };

  Fit pushByte(char byte);
  Fit pushBetween(char byte);
  Fit pushInString(char byte);
  Fit pushEscape(char byte);
  Fit pushHex(char byte);
  Fit pushInNumber(char byte);
  Fit endName();

  std::vector<Level> levels;
  Place where = Place::Between;
  std::string name;
  bool isEscape = false;
  int hexLeft = 0;
  unsigned hex = 0;
  /// Number of digits in this part of the number, and its maximum.
  size_t digits = 0, mostDigits = 0;
};

/// The texts of a vocabulary, and what of JSON they may have.
class TokenTexts {
public:
  /// `tokenizer` must outlive it.
  explicit TokenTexts(const Tokenizer &tokenizer);

  std::string_view bytes(int32_t id) const { return tokenizer.tokenBytes(id); }
  bool isAdded(int32_t id) const { return added[static_cast<size_t>(id)]; }
  /// The tokens that may not fit behind `text`, as a set (TokenConstraint).
  std::span<const uint32_t> misfits(const JsonText &text) const;

private:
  using Set = std::vector<uint32_t>;

  const Tokenizer &tokenizer;
  std::vector<bool> added;
  /// All but added tokens, and those for a place.
  Set texts, inNames, inStrings, between;
};

/// Which answers have JSON.
enum class JsonPart : uint8_t {
  None,
  All,
  /// What begins with a brace between two added tokens, such as a call.
  BetweenMarks,
};

/// The JSON of one answer.
class AnswerJson {
public:
  AnswerJson(std::shared_ptr<const TokenTexts> tokenTexts, JsonPart answerPart)
      : texts(std::move(tokenTexts)), part(answerPart),
        isIn(answerPart == JsonPart::All) {}

  /// Takes away tokens that do not fit (TokenConstraint::allowed). Numbers keep
  /// their digits if nothing else is left.
  void filter(std::span<uint32_t> allowed) const;
  void accept(int32_t id);

private:
  const std::shared_ptr<const TokenTexts> texts;
  const JsonPart part;
  /// Whether the text is JSON, and has begun.
  bool isIn, isBegun = false;
  /// Whether the last mark has opened something.
  bool isOpen = false;
  JsonText text;
};

} // namespace qwen

#endif // QWEN_RUNTIME_GRAMMAR_JSONTEXT_H
