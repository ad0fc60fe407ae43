//===- Drafter.h - Proposes the next tokens of answers ----------*- C++ -*-===//
//
// A step runs drafts behind the last token of an answer. The row of each draft
// confirms the next one or replaces it, so drafts change the number of steps
// and no answer.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTER_H
#define QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTER_H

#include "engine/Track.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace qwen {

class Engine;
class Step;

/// The number of drafts that a track gets in a step, 1 or more, and which:
/// Drafter::strength's or otherStrength's drafts.
struct DraftOrder {
  const Track *track;
  int64_t count;
  int64_t strength;
};

/// A call of a drafter's own model, which made a draft of `rows` tracks.
struct DraftCall {
  int64_t rows;
  double seconds;
};

/// Proposes tokens. The batcher owns it and calls it on its thread. An Error,
/// or std::bad_alloc, of a function with a track ends the request of that.
class Drafter {
public:
  Drafter() = default;
  Drafter(const Drafter &) = delete;
  Drafter &operator=(const Drafter &) = delete;
  virtual ~Drafter() = default;

  /// A track gets its first sequence, or another prompt. No function is called
  /// for requests that draw no tokens one after another: those with rows in
  /// place of an answer, and beam searches.
  virtual void begin(const Track &track) {}
  /// How much speaks for the drafts of a track now, from 0 on, or from
  /// kModelStrength on if a model makes them; -1: there are none. The draft i
  /// places behind the settled tokens is as likely as the first of another time
  /// whose strength was i more (DraftPace). Must allocate nothing.
  virtual int64_t strength(const Track & /*track*/) { return 0; }
  /// The same of other drafts that the drafter can make in place of those; -1:
  /// there are none. Comes behind `strength`.
  virtual int64_t otherStrength(const Track & /*track*/) { return -1; }
  /// The chance that a draft of its model is right if those before it are,
  /// before any has run. Nothing: it has no model.
  virtual std::optional<double> usualShare() const { return std::nullopt; }
  /// The most drafts of a track in a step.
  virtual int64_t mostDrafts() const { return INT64_MAX; }
  /// Seconds that the drafter expects to take before the first draft of a
  /// track, beside its `calls`: for text that its model has not read. Comes
  /// behind a `strength` of kModelStrength or more.
  virtual double secondsBehind(const Track & /*track*/) { return 0; }
  /// Comes once in a step, behind `strength` of its tracks and before `draft`,
  /// for a drafter that makes the drafts of several tracks together. An Error
  /// ends the requests of `orders`. Must allocate nothing.
  virtual void prepare(std::span<const DraftOrder> /*orders*/) {}
  /// The calls that the drafts of this step took. DraftPace learns from them
  /// what a draft costs.
  virtual std::span<const DraftCall> calls() const { return {}; }
  /// Appends at most `most` tokens, which is 1 or more, to follow the settled
  /// ones of a track. Comes behind `strength`. A token that is not in the
  /// vocabulary ends them. Must allocate nothing.
  virtual void draft(const Track &track, int64_t most,
                     std::vector<int32_t> &tokens) = 0;
  /// A call of `forward` has run and its rows have been told. The rows that
  /// other programs read lie in place until this function returns. An Error
  /// ends all requests of the step.
  virtual void follow(Step &step) {}
  /// A step has run `drafted` drafts of a track, 1 or more. The first
  /// `accepted` of them belong to the answer.
  virtual void accept(const Track &track, int64_t drafted, int64_t accepted) {}
  /// A track that has begun ends, or gets another prompt. Must not throw.
  virtual void end(const Track &track) {}
};

/// Makes the drafter of a batcher for its engine, which outlives it.
using MakeDrafterFn = std::function<std::unique_ptr<Drafter>(Engine &)>;

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_DRAFTERS_DRAFTER_H
