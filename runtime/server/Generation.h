//===- Generation.h - The answers to one HTTP request -----------*- C++ -*-===//
//
// An HTTP request may have several prompts, and several choices for each: each
// choice is a request of the scheduler. The scheduler's thread turns tokens
// into deltas of text; the connection's thread takes the deltas.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_GENERATION_H
#define QWEN_RUNTIME_SERVER_GENERATION_H

#include "engine/Scheduler.h"
#include "grammar/AnswerConstraint.h"
#include "server/AnswerParameters.h"
#include "server/Items.h"
#include "server/Metrics.h"
#include "server/http/Message.h"
#include "text/AnswerParser.h"

#include <mutex>
#include <stop_token>

namespace qwen::server {

/// Numbers of tokens.
struct Usage {
  int64_t prompt = 0, cached = 0, drawn = 0;
  /// Drafts that ran, and those that the answers have.
  int64_t drafted = 0, accepted = 0;
  /// Drawn tokens of the reasoning.
  int64_t reasoning = 0;
};

/// What a generation answers and how.
struct GenerationTask {
  AnswerParameters parameters = {};
  /// The parameter that has the prompts, and whether as a list, whose elements
  /// errors name.
  std::string input = {};
  bool isList = false;
  std::vector<std::vector<int32_t>> prompts = {};
  /// The model's tokens that end an answer.
  std::vector<int32_t> ends = {};
  /// Null if all of an answer is text.
  const AnswerFormat *format = nullptr;
  /// Whether the request lets an answer reason.
  bool mayReason = true;
  /// How its calls of tools are read.
  CallOptions calls = {};
  /// What its reasoning ends with when the budget is used up.
  std::vector<int32_t> budgetMessage = {};
  /// What a choice keeps of the row of its prompt's last token; null for
  /// nothing.
  std::function<std::vector<float>(std::span<const float> row)> keep = nullptr;
  RowKind rowKind = RowKind::Logits;
  /// Gives a choice its next token in place of a drawn one, as Request::onDraw
  /// does. Tests write answers by it. Null for none.
  std::function<std::optional<int32_t>(size_t choice)> onDraw = nullptr;
  /// The root of all prompts.
  RootRef root = {};
  /// Request::snapshotAt of all prompts.
  int64_t snapshotAt = 0;

  /// The name of a prompt in errors.
  std::string nameOf(size_t prompt) const;
  /// The parameter that has the grammar of the answer, or asks for one of its
  /// calls; empty without one.
  std::string grammarParameter() const;
};

/// All threads may call all functions.
class Generation : public std::enable_shared_from_this<Generation> {
public:
  /// `wake` is called after each change. All references must
  /// outlive the scheduler.
  Generation(GenerationTask task, const Tokenizer &tokenizer,
             Scheduler &scheduler, Metrics &metrics, WakeFn wake);

  const GenerationTask &task() const { return what; }
  size_t choices() const { return states.size(); }
  /// The index of the prompt of a choice.
  size_t promptOf(size_t choice) const {
    return choice / static_cast<size_t>(what.parameters.choices);
  }

  /// Submits the requests as a series, unless they are cancelled. `grammar`
  /// says what the answer may be like; null for anything. Throws Error if the
  /// queue is full.
  void start(std::shared_ptr<const Grammar> grammar = nullptr);
  /// Ends it in place of `start`.
  void refuse(ApiError error);
  /// Also requests what comes before `start` to stop.
  void cancel();
  std::stop_source stopSource() const { return stopping; }
  /// Whether `start` or `refuse` has been called, and which.
  bool hasStarted() const;
  bool isRefused() const;

  /// What has come since the last call.
  std::vector<Delta> take();
  /// Whether nothing comes any more.
  bool isDone() const;
  /// The error that ended the generation.
  std::optional<ApiError> error() const;
  Usage usage() const;
  /// Seconds from the start to the first token and to the end, for timings.
  double firstTokenSeconds() const;
  double seconds() const;

private:
  /// State of the scheduler's thread, while a choice waits or runs.
  struct Choice {
    Choice(const Tokenizer &tokenizer, const AnswerFormat *format,
           std::span<const int32_t> prompt, AnswerOptions options)
        : parser(tokenizer, format, prompt, std::move(options)) {}

    AnswerParser parser;
    /// Null without a grammar.
    std::shared_ptr<const AnswerConstraint> constraint;
    /// The prompt, for echo, until it has run, and its tokens that no delta has
    /// had.
    std::string echo;
    std::vector<TokenRecord> echoed;
    /// Counts the characters of the prompt.
    Utf8Stream characters;
    /// Tokens of the answer that no delta has had.
    std::vector<TokenRecord> tokens;
    std::vector<float> kept;
    RequestTimes times = {};
    /// Seconds from the arrival to the last token.
    double lastTokenTime = 0;
    int32_t lastToken = -1;
    ItemList items;
    std::optional<double> score = {};
  };

  /// Number of choices that a request of the scheduler answers.
  size_t choicesOfRequest() const {
    return what.parameters.beams.isSearch()
               ? static_cast<size_t>(what.parameters.choices)
               : 1;
  }
  void open(size_t choice);
  /// The request of the next choice, or of the next choices of a beam search;
  /// nothing if there is none.
  std::optional<Request> next();
  Request requestOf(size_t choice);
  /// The token that a choice gets in place of a drawn one.
  std::optional<int32_t> givenToken(size_t choice) const;
  /// The tokens that end an answer: the model's, and all with the request's.
  std::vector<int32_t> modelEnds() const;
  std::vector<int32_t> ends() const;
  /// Adds the prompt to what a choice tells, for echo.
  void echo(Choice &state, std::span<const int32_t> prompt) const;
  /// Adds a token to the prompt's.
  void echoToken(Choice &state, TokenRecord record) const;
  TokenRecord recordOf(const TokenEvent &event) const;
  void onProgress(size_t choice, const Progress &progress);
  /// Adds an event of the parser, with the records of its tokens.
  void add(Delta &delta, const AnswerEvent &event);
  bool onToken(size_t choice, const TokenEvent &event);
  /// Gives the answers of a beam search to the choices from `first` on.
  void onAnswers(size_t first, std::span<const BeamTokens> answers);
  /// Ends the choices of a request, from `first` on.
  void onEnd(size_t first, const Ending &ending);
  void tellEnd(size_t first, const Ending &ending);
  /// Whether the client lags behind a stream.
  bool isHeld();
  /// The last delta of a choice.
  Delta endOf(size_t choice, EndReason reason);
  /// Seconds since the start.
  double elapsed() const;
  void noteTimes(Choice &state);
  // With the mutex held.
  /// Adds a delta.
  void push(Delta delta);
  /// Whether an answer that is sent as a whole has too many bytes.
  bool isTooLarge() const;
  /// The error of a choice that has ended so, if it is one.
  std::optional<ApiError> failureOf(size_t choice, const Ending &ending) const;

  void give(Delta delta);

  const GenerationTask what;
  const Tokenizer &tokenizer;
  Scheduler &scheduler;
  Metrics &metrics;
  const WakeFn wake;
  const int64_t startTime;
  const std::stop_source stopping;
  /// Set by `start`.
  std::shared_ptr<const Grammar> grammar;
  /// The scheduler's thread uses them, after `start`.
  std::vector<std::unique_ptr<Choice>> states;
  size_t started = 0;

  /// Guards all below it.
  mutable std::mutex mutex;
  enum class Phase : uint8_t { Before, Started, Refused };
  Phase phase = Phase::Before;
  RequestId series = 0;
  std::vector<Delta> deltas;
  /// Approximate size of the deltas, and of all that were taken before.
  size_t deltaBytes = 0, takenBytes = 0;
  /// Whether a delta has had more than progress.
  bool hasContent = false;
  size_t ended = 0;
  /// What isHeld has said last.
  bool held = false;
  /// Memory lacked for the end of a choice.
  bool lacksMemory = false;
  std::optional<ApiError> failure;
  Usage tokens;
  double firstToken = 0, end = 0;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_GENERATION_H
