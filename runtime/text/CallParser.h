//===- CallParser.h - Finds calls of tools in an answer ---------*- C++ -*-===//
//
// Reads the text and the reasoning of an answer. What it finds depends on their
// characters only, not on how they are divided.
//
//   - A mark begins a call when the name of a tool is complete behind it.
//   - Without its mark, a call begins a line outside of code fences and has the
//     name of a tool of the request.
//   - A call in the reasoning counts if the answer ends behind it.
//   - If a grammar keeps the calls, the last two rules do not hold.
//
// All else stays what it was.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_TEXT_CALLPARSER_H
#define QWEN_RUNTIME_TEXT_CALLPARSER_H

#include "text/CallFormat.h"

#include <memory>
#include <optional>

namespace qwen {

/// What an answer promises about its calls (CallGrammar.h).
struct CallRules {
  /// The parameter of the request that asks for it.
  std::string parameter = {};
  /// The answer is calls without other text, at least one.
  bool isRequired = false;
  /// It has at most one.
  bool isSingle = false;
};

/// How the calls of an answer are read.
struct CallOptions {
  /// Null: nothing is a call.
  const CallFormat *format = nullptr;
  std::shared_ptr<const Tools> tools = std::make_shared<Tools>();
  /// If a grammar keeps the calls. It knows those behind a mark that is not in
  /// the reasoning, so that nothing else is a call.
  std::optional<CallRules> rules = {};
};

class CallParser {
public:
  explicit CallParser(CallOptions callOptions)
      : options(std::move(callOptions)) {}

  /// The answer goes on with `text`, which is UTF-8: text for the user, or the
  /// reasoning. `kind` is the kind of its event if it belongs to no call.
  /// Appends events.
  void push(AnswerEventKind kind, bool isReasoning, std::string_view text,
            AnswerEvents &events);
  /// The answer has ended, within the reasoning or behind it.
  void finish(bool isReasoning, AnswerEvents &events);

  /// Whether `next`, which has come behind all other text, may belong to a call
  /// that has begun or be white space behind one.
  bool mayTake(std::string_view next) const;
  /// Number of calls that are whole.
  int64_t calls() const { return whole; }
  /// Whether a call is not whole.
  bool isBroken() const { return broken; }

private:
  enum class State : uint8_t { Outside, Call, After };

  /// The start of lines, for calls without marks.
  struct Lines {
    void add(char byte);
    bool isStart = true, isInFence = false;

  private:
    /// Bytes of the line's first word, up to three, if all are equal.
    char first = 0;
    int equal = 0;
    bool isDecided = false;
  };

  void scan(bool isLast, AnswerEvents &events);
  /// Looks for a call in what is held. Returns whether one has begun.
  bool findCall(bool isLast, AnswerEvents &events);
  /// Whether a call begins what is held, and how long its mark and its name
  /// are.
  CallReader::Begin beginsCall(bool isLast, size_t &size);
  void readCall(bool isLast, AnswerEvents &events);
  /// Drops what stands between calls, and brackets that are too many before the
  /// closing mark. Returns whether something else follows.
  bool skipBetween(bool isLast);
  /// Passes on the first `size` bytes that are held, except newlines at their
  /// end.
  void pass(size_t size, AnswerEvents &events);
  /// Takes the first `size` bytes that are held, as a part of a call.
  void drop(size_t size);
  /// Makes reasoning of the calls in it, because the answer goes on.
  void release(AnswerEvents &events);
  /// Reads all that is held. Nothing follows it in this part of the answer.
  void endPart(AnswerEvents &events);

  const CallOptions options;
  State state = State::Outside;
  AnswerEventKind kind = AnswerEventKind::Text;
  bool inReasoning = false;
  /// Text that may begin a call or go on with it.
  std::string held;
  /// Newlines that are held back, as a call may follow.
  std::string newlines;
  /// Those before and behind the last calls. Text behind these begins with the
  /// longer of the two, unless it is the first.
  std::string before, behind;
  bool hasText = false;
  Lines lines;
  std::unique_ptr<CallReader> reader;
  /// Whether the mark behind the last call may still come.
  bool mayClose = false;
  /// Calls in the reasoning, as its text and as events.
  std::string thought;
  AnswerEvents doubtful;
  int64_t whole = 0;
  bool broken = false;
};

} // namespace qwen

#endif // QWEN_RUNTIME_TEXT_CALLPARSER_H
