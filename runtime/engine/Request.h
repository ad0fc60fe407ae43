//===- Request.h - What a scheduler is asked for ----------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_ENGINE_REQUEST_H
#define QWEN_RUNTIME_ENGINE_REQUEST_H

#include "engine/BeamSearch.h"
#include "engine/Prompt.h"
#include "engine/Sampler.h"
#include "engine/Token.h"
#include "engine/TokenConstraint.h"

#include "qwen/Support/Error.h"

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

namespace qwen {

/// Number of a request in its scheduler, from 1.
using RequestId = uint64_t;

/// A token and the log of its probability, from the raw logits.
struct TokenLogprob {
  int32_t id;
  float logprob;
};

/// A drawn token, or a token of the prompt with its score.
struct TokenEvent {
  int32_t id;
  int64_t position;
  /// Whether it belongs to the prompt.
  bool isPrompt;
  /// With Request::logprobs: the log of its probability, and the most likely
  /// tokens in its place; of equals, the smallest id is first.
  float logprob;
  std::span<const TokenLogprob> top;
};

/// How much of a prompt has run.
struct Progress {
  int64_t done, total;
  /// Tokens that the prefix cache had; they count as done.
  int64_t cached;
};

enum class EndReason {
  /// A stop token was drawn, or the constraint is done.
  Stop,
  /// The answer has maxTokens tokens, or the context is full.
  Length,
  /// onToken returned false.
  Callback,
  /// Scheduler::cancel, or the end of the scheduler.
  Cancelled,
  /// Ending::error says why.
  Failed,
};

/// The end of a request.
struct Ending {
  EndReason reason;
  /// Failed: the kind and one line.
  ErrorKind kind;
  std::string error;
  int64_t promptTokens;
  /// Tokens of the prompt that the prefix cache had.
  int64_t cachedTokens;
  /// Tokens of the answer. A beam search has several answers.
  int64_t drawnTokens;
  /// Drafts that ran, and those that the answer has.
  int64_t draftTokens = 0, acceptedTokens = 0;
};

/// Rows of the last tokens of a prompt, which a request may want in place of an
/// answer.
struct PromptRows {
  RowKind kind;
  /// Receives each row once, in order.
  std::function<void(std::span<const float> row)> receive;
  size_t count = 1;
};

/// A prompt and how to answer it. A scheduler calls the functions on its own
/// thread; they must not block, or throw anything but std::bad_alloc, which
/// ends the request. Each may be empty.
struct Request {
  Prompt prompt;
  SamplerOptions sampling = {};
  /// See Sampler.
  uint64_t answer = 0;
  /// Maximum number of drawn tokens; 0 only runs the prompt.
  int64_t maxTokens = std::numeric_limits<int64_t>::max();
  /// Tokens that end the answer. They are drawn and passed to onToken.
  std::vector<int32_t> stopTokens = {};
  /// Called with each of them behind onToken. Returns whether it ends the
  /// answer there; null if all do. A beam search does not call it.
  std::function<bool(int32_t id)> isEnd = {};
  /// Requests of a higher priority come first.
  int32_t priority = 0;
  /// A number of tokens of the prompt that later prompts will begin with; 0:
  /// unknown. A model with fixed state gets a snapshot there.
  int64_t snapshotAt = 0;
  /// The number of most likely tokens that events have; nothing: no logprobs.
  std::optional<int64_t> logprobs = {};
  /// Pass the tokens of the prompt, from the second on, to onToken too. Needs
  /// logprobs. All of the prompt runs then, whatever the prefix cache has.
  bool scorePrompt = false;
  /// Nothing is drawn with these.
  std::optional<PromptRows> rows = {};
  /// A beam search takes the place of draws. The sampler's bias and penalties
  /// act, and nothing else of it. Excludes rows, constraint, onDraw and
  /// isContinued; with it, logprobs must be 0. onToken gets tokens of the
  /// prompt only.
  BeamOptions beams = {};
  /// Number of answers of a beam search.
  int64_t answers = 1;
  /// The job stays when its answer has ended: Batcher::restart continues its
  /// sequence.
  bool isContinued = false;
  /// Says which tokens may be drawn, before all samplers, on any thread of the
  /// engine. It gets each token of the answer before onToken. The answer ends
  /// when it is done. Where only one token may follow another, nothing is drawn
  /// or computed for it, except with logprobs or onDraw.
  std::shared_ptr<TokenConstraint> constraint = {};

  /// Called when the request starts, before all other functions.
  std::function<void()> onStart = {};
  /// Called before each draw, with the logits of the token before it and its
  /// position. The constraint has taken tokens away from these logits.
  /// Returns a token that the answer gets instead of a drawn one, or nothing.
  std::function<std::optional<int32_t>(std::span<const float> logits,
                                       int64_t position)>
      onDraw = {};
  /// Receives each token once, in order. Returns whether to go on.
  std::function<bool(const TokenEvent &)> onToken = {};
  /// Called after each step that ran a part of the prompt; when all of it has
  /// run, before the first draw.
  std::function<void(const Progress &)> onProgress = {};
  /// Receives the answers of a beam search that was neither cancelled nor
  /// failed, best first. The tokens that end them belong to them.
  std::function<void(std::span<const BeamTokens>)> onAnswers = {};
  /// Called once, after all other functions.
  std::function<void(const Ending &)> onEnd = {};
  /// Whether the answer waits for its reader. Asked before each step, and after
  /// Scheduler::wake. Such a request leaves the batch, as in a preemption, and
  /// others run in its place. Empty: it never waits.
  std::function<bool()> isHeld = {};
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_REQUEST_H
