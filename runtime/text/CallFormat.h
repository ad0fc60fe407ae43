//===- CallFormat.h - How models write calls of tools -----------*- C++ -*-===//
//
// A format is a row; CallParser finds calls by it. A call stands between two
// marks that all formats have.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_CALLFORMAT_H
#define QWEN_RUNTIME_TEXT_CALLFORMAT_H

#include "text/AnswerEvent.h"
#include "text/Tools.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace qwen {

inline constexpr std::string_view kCallOpen = "<tool_call>",
                                  kCallClose = "</tool_call>";

/// What is held back because of what may follow, in bytes, at most: a name that
/// is longer is none, and a call that goes on without an end is broken.
inline constexpr size_t kMostHeld = 65536;

/// Reads one call.
class CallReader {
public:
  enum class Begin : uint8_t { No, Maybe, Yes };

  explicit CallReader(const Tools &requestTools) : tools(requestTools) {}
  CallReader(const CallReader &) = delete;
  CallReader &operator=(const CallReader &) = delete;
  virtual ~CallReader() = default;

  /// Whether a call begins with `text`, all that has come of it; if so, `size`
  /// becomes the number of bytes up to the end of its name. A bare call has no
  /// mark before it, and must have the name of a tool.
  virtual Begin begin(std::string_view text, bool isBare, size_t &size) = 0;
  /// Reads on, behind what began the call or was read before, and appends
  /// events. Returns the number of bytes that it has read; the others come
  /// again, with more behind them unless the answer ends with them (`isLast`).
  size_t push(std::string_view text, bool isLast, AnswerEvents &events);

  /// Whether the call has ended. What follows does not belong to it.
  bool isDone() const { return hasEnded; }
  /// Whether the call cannot be read; its rest is dropped.
  bool isBroken() const { return broken; }
  const std::string &name() const { return toolName; }

protected:
  /// `push`, up to the end of the call or to what it breaks at. Appends to
  /// `arguments`.
  virtual size_t read(std::string_view text, bool isLast,
                      std::string &arguments) = 0;
  void end() { hasEnded = true; }
  void breakOff() { broken = true; }

  const Tools &tools;
  std::string toolName;

private:
  /// The size of what a broken call has up to its closing mark.
  size_t skip(std::string_view text, bool isLast);

  bool hasBegun = false, hasEnded = false, broken = false;
};

struct CallFormat {
  /// The word of --tool-format.
  std::string_view name;
  /// What a call begins with, behind its mark or without it.
  std::string_view start;
  std::unique_ptr<CallReader> (*makeReader)(const Tools &tools);
  /// Rules in Lark (LarkText.h) of a call of `tool` between its marks, as the
  /// format's templates write it: one with the name `rule`, and others whose
  /// names begin with it. The reader makes of each such text a call whose
  /// arguments are an object of the tool's schema, or some object if `isLoose`.
  /// Throws Error, which names the keyword, if it cannot keep the schema.
  std::string (*writeRules)(const Tool &tool, const std::string &rule,
                            bool isLoose);
  /// Where these rules have the text of a tool with a grammar: any text that
  /// the format can write. A grammar beside them keeps it (InnerText).
  TextPlace (*placeOf)(const Tool &tool);
};

/// All formats.
std::span<const CallFormat> callFormats();
/// The format of this name, or null.
const CallFormat *findCallFormat(std::string_view name);
/// The names, with commas.
std::string callFormatNames();

/// Whether `text` begins with `word`, or is the start of it.
CallReader::Begin beginsWith(std::string_view text, std::string_view word);
/// The number of bytes of the first character of a text of UTF-8.
size_t characterSize(std::string_view text);
/// Throws Error if the "type" of a schema of arguments allows no object.
void requireObjects(const nlohmann::ordered_json &schema);
/// The number of bytes of white space that `text` begins with.
size_t spaceBefore(std::string_view text);

/// A row has one of each.
std::unique_ptr<CallReader> makeHermesReader(const Tools &tools);
std::unique_ptr<CallReader> makeXmlReader(const Tools &tools);
std::string writeHermesRules(const Tool &tool, const std::string &rule,
                             bool isLoose);
std::string writeXmlRules(const Tool &tool, const std::string &rule,
                          bool isLoose);
TextPlace hermesTextPlace(const Tool &tool);
TextPlace xmlTextPlace(const Tool &tool);

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_CALLFORMAT_H
