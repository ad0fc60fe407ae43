//===- BeamSearch.h - The best of many answers ------------------*- C++ -*-===//
//
// Beam search without an engine: which beams go on with which tokens, which
// answers are finished, and when the search ends. docs/numerics.md, "Beam
// search", has the steps.
//
// transformers 5.23 gives the same answers of plain beams, and
// transformers 4.46.3 the same of groups (Vijayakumar et al., "Diverse beam
// search", 2016).
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_ENGINE_BEAMSEARCH_H
#define QWEN_RUNTIME_ENGINE_BEAMSEARCH_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qwen {

/// What ends a search before its answers have all their tokens.
enum class EarlyStopping : int32_t {
  /// The search has as many answers as beams, and the worst is better than the
  /// best beam would be if it ended now.
  False,
  /// The search has as many answers as beams.
  True,
  /// The search has as many answers as beams, and the worst is better than any
  /// answer that is still possible.
  Never,
};

/// The words of transformers, by EarlyStopping.
inline constexpr std::array<std::string_view, 3> kEarlyStoppingWords = {
    "false", "true", "never"};

/// Maximum number of beams.
inline constexpr int64_t kMostBeams = 64;

/// Why options of a beam search do not fit.
struct BeamRefusal {
  /// The option, or kBeamAnswers for the number of answers.
  std::string_view option;
  std::string found, needed;
};
inline constexpr std::string_view kBeamAnswers = "the number of answers";

/// BeamOptions.def describes the fields.
struct BeamOptions {
#define QWEN_BEAM_OPTION(Type, Field, Name, Default, ...) Type Field = Default;
#include "qwen/ABI/BeamOptions.def"
  EarlyStopping earlyStopping = EarlyStopping::False;

  bool isSearch() const { return beams > 1; }
  /// The first option that is out of range or does not fit the others, or the
  /// number of answers if a search does not give as many, with the names that
  /// requests use.
  std::optional<BeamRefusal> refusal(int64_t answers) const;
  /// Throws Error about the refusal, with the names of flags.
  void check(int64_t answers) const;
};

/// A token with which a beam may go on.
struct BeamCandidate {
  int32_t id;
  /// The log of its probability, and what counts: the same after penalties.
  float logprob, value;
};

/// The tokens of a beam or of an answer, after the prompt.
struct BeamTokens {
  /// The sum of the values of its tokens. An answer divides it by a power of
  /// their number.
  double score = 0;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  /// The number of a beam's parent among the beams of the step before.
  size_t parent = 0;
};

/// Allocates only when an answer is finished, or a beam is longer than all
/// before.
class BeamSearch {
public:
  /// Computes the value of a candidate of a beam from another log-probability.
  using ReviseFn = std::function<float(size_t beam, int32_t id, float logprob)>;

  /// `ends` end an answer; at most `mostTokens` (1 or more) do too. Throws
  /// Error as BeamOptions::check does.
  BeamSearch(const BeamOptions &options, std::span<const int32_t> ends,
             int64_t mostTokens);

  /// The beams that go on, best first in each group; at first one, without
  /// tokens. None if the search is done.
  std::span<const BeamTokens> beams() const {
    return std::span(running).first(runningCount);
  }
  /// Number of candidates that each beam must offer, as long as it has them.
  size_t candidates() const;
  /// Gives each beam a next token. `offers` has the best candidates of each
  /// beam, in any order.
  void advance(std::span<const std::vector<BeamCandidate>> offers,
               const ReviseFn &revise);
  bool isDone() const { return runningCount == 0; }
  /// The best answers in descending order; of equals, the first finished.
  /// There are fewer only if candidates lacked.
  std::vector<BeamTokens> answers(size_t count) const;

private:
  struct Group {
    /// Places of the group's beams in `running`: [begin, end).
    size_t begin = 0, end = 1;
    bool isDone = false;
    /// In descending order.
    std::vector<BeamTokens> answers;
  };
  struct Ranked {
    double score;
    size_t beam;
    int32_t id;
    float logprob;
  };

  void expand(Group &group, std::span<const std::vector<BeamCandidate>> offers,
              const ReviseFn &revise);
  /// Fills `ranked` with the best candidates of a group, in order.
  void rank(const Group &group,
            std::span<const std::vector<BeamCandidate>> offers,
            const ReviseFn &revise);
  /// Number of beams that earlier groups have given this token.
  int64_t taken(int32_t id) const;
  void push(const Ranked &choice);
  void finish(Group &group, const BeamTokens &beam);
  /// Whether none of a group's beams can become one of its answers; `best` is
  /// the greatest score of a beam.
  bool isOver(const Group &group, double best) const;
  double normalized(double score, int64_t tokens) const;
  bool isEnd(int32_t id) const;

  const BeamOptions options;
  const std::vector<int32_t> ends;
  const int64_t mostTokens;
  const size_t groupSize;
  int64_t length = 0;
  std::vector<Group> groups;
  /// The first of them run, or will after this step.
  std::vector<BeamTokens> running, next;
  size_t runningCount = 1, nextCount = 0;
  std::vector<Ranked> ranked;
};

} // namespace qwen

#endif // QWEN_RUNTIME_ENGINE_BEAMSEARCH_H
