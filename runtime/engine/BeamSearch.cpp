//===- BeamSearch.cpp - The best of many answers --------------------------===//

#include "engine/BeamSearch.h"

#include "qwen/Numerics/Doubles.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

using namespace qwen;

/// The text of a number, with at most six digits behind its point.
static std::string textOf(auto number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

std::optional<BeamRefusal> BeamOptions::refusal(int64_t answers) const {
#define QWEN_BEAM_OPTION(Type, Field, Name, Default, Least, Most, Help)        \
  {                                                                            \
    const Type value = this->Field;                                            \
    if (!(value >= (Least) && value <= (Most)))                                \
      return BeamRefusal{#Name, textOf(value), #Least " to " #Most};           \
  }
#include "qwen/ABI/BeamOptions.def"
  const std::string count = "num_beams (" + textOf(beams) + ")";
  if (beams % groups)
    return BeamRefusal{"num_beam_groups", textOf(groups),
                       "a divisor of " + count};
  if (groups > 1 && diversityPenalty == 0)
    return BeamRefusal{"diversity_penalty", "0",
                       "more than 0 with num_beam_groups"};
  if (groups == 1 && diversityPenalty != 0)
    return BeamRefusal{"diversity_penalty", textOf(diversityPenalty),
                       "0 without num_beam_groups"};
  if (isSearch() && (answers < 1 || answers > beams))
    return BeamRefusal{kBeamAnswers, textOf(answers), "1 to " + count};
  return std::nullopt;
}

void BeamOptions::check(int64_t answers) const {
  const std::optional<BeamRefusal> refused = refusal(answers);
  if (!refused)
    return;
  std::string text(refused->option);
  text += " is " + refused->found + " when " + refused->needed + " is needed";
  std::ranges::replace(text, '_', '-');
  throw Error(text);
}

BeamSearch::BeamSearch(const BeamOptions &beamOptions,
                       std::span<const int32_t> endTokens, int64_t most)
    : options(beamOptions), ends(endTokens.begin(), endTokens.end()),
      mostTokens(most),
      groupSize(static_cast<size_t>(options.beams / options.groups)) {
  options.check(1);
  const auto count = static_cast<size_t>(options.beams);
  groups.resize(static_cast<size_t>(options.groups));
  running.resize(count);
  next.resize(count);
  ranked.reserve(groupSize * candidates());
}

/// Enough for a group that does not go on with the ends of its beams. Of the
/// tokens that earlier groups have taken, each may cost a place.
size_t BeamSearch::candidates() const {
  return groupSize * std::max<size_t>(2, 1 + ends.size()) +
         static_cast<size_t>(options.beams) - groupSize;
}

bool BeamSearch::isEnd(int32_t id) const {
  return std::ranges::count(ends, id) > 0;
}

double BeamSearch::normalized(double score, int64_t tokens) const {
  const auto count = static_cast<double>(tokens);
  return score / (options.lengthPenalty == 1
                      ? count
                      : numerics::pow(count, options.lengthPenalty));
}

int64_t BeamSearch::taken(int32_t id) const {
  return std::ranges::count_if(
      std::span(next).first(nextCount),
      [&](const BeamTokens &beam) { return beam.ids.back() == id; });
}

void BeamSearch::rank(const Group &group,
                      std::span<const std::vector<BeamCandidate>> offers,
                      const ReviseFn &revise) {
  ranked.clear();
  for (size_t beam = group.begin; beam < group.end; ++beam)
    for (const auto &[id, logprob, ownValue] : offers[beam]) {
      const int64_t count = taken(id);
      const float value =
          count ? revise(beam, id,
                         static_cast<float>(logprob -
                                            options.diversityPenalty *
                                                static_cast<double>(count)))
                : ownValue;
      ranked.push_back({running[beam].score + value, beam, id, logprob});
    }
  const size_t count =
      std::min(ranked.size(), groupSize * std::max<size_t>(2, 1 + ends.size()));
  std::ranges::partial_sort(
      ranked, ranked.begin() + static_cast<std::ptrdiff_t>(count), {},
      [](const Ranked &of) { return std::tuple(-of.score, of.beam, of.id); });
  ranked.resize(count);
}

void BeamSearch::push(const Ranked &choice) {
  BeamTokens &beam = next[nextCount++];
  const BeamTokens &parent = running[choice.beam];
  beam.score = choice.score;
  beam.parent = choice.beam;
  beam.ids = parent.ids;
  beam.ids.push_back(choice.id);
  beam.logprobs = parent.logprobs;
  beam.logprobs.push_back(choice.logprob);
}

/// Inserts an answer behind all that are as good.
static void insert(std::vector<BeamTokens> &answers, BeamTokens answer) {
  const auto place = std::ranges::upper_bound(
      answers, answer.score, std::greater(), &BeamTokens::score);
  answers.insert(place, std::move(answer));
}

void BeamSearch::finish(Group &group, const BeamTokens &beam) {
  const double score = normalized(beam.score, std::ssize(beam.ids));
  if (group.answers.size() == groupSize) {
    if (score <= group.answers.back().score)
      return;
    group.answers.pop_back();
  }
  BeamTokens answer = beam;
  answer.score = score;
  insert(group.answers, std::move(answer));
}

bool BeamSearch::isOver(const Group &group, double best) const {
  if (group.answers.size() < groupSize)
    return false;
  if (options.earlyStopping == EarlyStopping::True)
    return true;
  const bool mayGrow = options.earlyStopping == EarlyStopping::Never &&
                       options.lengthPenalty > 0;
  return normalized(best, mayGrow ? mostTokens : length) <=
         group.answers.back().score;
}

void BeamSearch::expand(Group &group,
                        std::span<const std::vector<BeamCandidate>> offers,
                        const ReviseFn &revise) {
  const bool isPlain = options.groups == 1;
  const bool isLast = length == mostTokens;
  const size_t begin = nextCount;
  rank(group, offers, revise);
  for (size_t i = 0; i < ranked.size() && nextCount < begin + groupSize; ++i) {
    const bool isFinished = isEnd(ranked[i].id) || (isPlain && isLast);
    // Those after groupSize only take the places of beams that end.
    if (isFinished && i >= groupSize)
      continue;
    push(ranked[i]);
    if (isFinished)
      finish(group, next[--nextCount]);
  }
  group.begin = begin;
  group.end = nextCount;
  // transformers 4.46.3 compares with the best candidate, 5.23 with the best
  // that goes on.
  group.isDone = nextCount == begin ||
                 isOver(group, isPlain ? next[begin].score : ranked[0].score);
  if (!group.isDone && isLast)
    for (size_t i = begin; i < nextCount; ++i)
      finish(group, next[i]);
}

void BeamSearch::advance(std::span<const std::vector<BeamCandidate>> offers,
                         const ReviseFn &revise) {
  ++length;
  nextCount = 0;
  for (Group &group : groups)
    if (!group.isDone)
      expand(group, offers, revise);
  const auto isDone = [](const Group &group) { return group.isDone; };
  if (length == mostTokens || std::ranges::all_of(groups, isDone))
    nextCount = 0;
  // Groups that are done do not go on, but their tokens of this step count.
  size_t kept = 0;
  for (Group &group : groups) {
    const size_t begin = kept;
    for (size_t i = group.begin; !group.isDone && i < group.end && nextCount;
         ++i)
      std::swap(next[kept++], next[i]);
    group.begin = begin;
    group.end = kept;
  }
  runningCount = kept;
  std::swap(running, next);
}

std::vector<BeamTokens> BeamSearch::answers(size_t count) const {
  std::vector<BeamTokens> all;
  for (const Group &group : groups)
    for (const BeamTokens &answer : group.answers)
      insert(all, answer);
  all.resize(std::min(all.size(), count));
  return all;
}
