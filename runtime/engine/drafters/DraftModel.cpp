//===- DraftModel.cpp - Drafts of a smaller model -------------------------===//
//
// Y. Leviathan et al., "Fast inference from transformers via speculative
// decoding", ICML 2023, with drafts that are the likeliest tokens: a draft is
// confirmed by the draw of plain decoding, and need not come from a
// distribution. The drafts of a step run as one batch, a place at a time.
//
//===----------------------------------------------------------------------===//

#include "engine/drafters/DraftModel.h"

#include "engine/Engine.h"
#include "engine/Job.h"
#include "engine/SteadyClock.h"
#include "engine/drafters/Drafters.h"

#include "qwen/ABI/Caches.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

using namespace qwen;

/// Tokens before a draft that the model reads at most, when it begins in a text
/// or has drafted nothing for as many tokens.
static constexpr int64_t kReadTokens = 64;

/// Tokens of a track that are read with the first draft: the last draft of a
/// step that confirmed all, which has not run, and the token behind it.
static constexpr int64_t kTokensOfDraft = 2;

/// Between what models of one family have in prose and in code.
static constexpr double kUsualShare = 0.6;

/// How fast the measured time of a read token changes.
static constexpr double kReadRate = 0.3;

static int64_t positionsOf(const Manifest &manifest) {
  return std::min(manifest.model.context, kDraftPositions);
}

int64_t qwen::draftPagesOf(const Manifest &manifest) {
  return ceilDiv(positionsOf(manifest), kPageTokens);
}

namespace {
/// A sequence of the model, and the text that it has.
struct Place {
  SequenceId sequence;
  Sampler sampler;
  /// The track that has the place, or null.
  const Track *track = nullptr;
  /// The step in which the track was last asked for.
  int64_t asked = 0;
  /// The token of the text that is the sequence's first.
  int64_t first = 0;
  /// Tokens of the sequence that are settled, and the drafts behind them.
  int64_t same = 0;
  std::vector<int32_t> ran = {};
  /// The drafts of this step, and how many it gets.
  std::vector<int32_t> drafts = {};
  int64_t count = 0;
};

class DraftModel final : public Drafter {
public:
  DraftModel(Engine &engine, Engine &draft);
  ~DraftModel() override;

  void begin(const Track &track) override { known.try_emplace(&track); }
  void end(const Track &track) override;
  int64_t strength(const Track &track) override;
  std::optional<double> usualShare() const override { return kUsualShare; }
  int64_t mostDrafts() const override { return most; }
  double secondsBehind(const Track &track) override;
  void prepare(std::span<const DraftOrder> orders) override;
  std::span<const DraftCall> calls() const override { return madeCalls; }
  void draft(const Track &track, int64_t count,
             std::vector<int32_t> &tokens) override;

private:
  /// The place of a track that has begun.
  struct Known {
    Place *place = nullptr;
    bool hasFailed = false;
  };

  /// A place that no running track has; null if there is none.
  Place *takePlace(const Track &track);
  /// Takes the place from its track.
  void leave(Place &place);
  void empty(Place &place, int64_t first);
  /// Removes the tokens of a place that the text does not have, and all if too
  /// much lies behind or ahead of them.
  void keepUp(Place &place, std::span<const int32_t> text);
  /// Appends tokens of the text to the batch. The last one gives a draft if it
  /// is the last of the text.
  void append(Place &place, std::span<const int32_t> text, int64_t count);
  /// Runs the batch, and appends to the drafts of its places. Returns the
  /// seconds.
  double run();
  void receive(std::span<const Engine::Row> rows);

  Engine &engine;
  const ProgramInfo &program;
  /// Most positions of a place, and most drafts of a step.
  const int64_t positions;
  const int64_t most;
  /// Tokens that a step reads at most before its first drafts.
  const int64_t readTokens;
  std::vector<Place> places;
  std::unordered_map<const Track *, Known> known;
  int64_t step = 0;
  double secondsOfToken = 0;
  const Engine::RowsFn receiver;
  std::vector<Token> batch;
  /// The place of each token of the batch.
  std::vector<Place *> owners;
  std::vector<DraftCall> madeCalls;
};
} // namespace

DraftModel::DraftModel(Engine &target, Engine &draft)
    : engine(draft), program(draft.manifest().forward()),
      positions(std::min(positionsOf(draft.manifest()),
                         draft.state().pages() * kPageTokens)),
      most(std::min({stepBackOf(draft.manifest()) + 1,
                     std::max<int64_t>(1, positions / 4),
                     target.maxCallRows()})),
      readTokens(std::max(draft.maxCallTokens(), kReadTokens)),
      receiver([this](std::span<const Engine::Row> rows) { receive(rows); }) {
  const Manifest &manifest = draft.manifest();
  SamplerOptions greedy;
  greedy.temperature = 0;
  const int64_t logits = manifest.model.outputWidth();
  const int64_t drawn = std::min(manifest.tokenLogits(program),
                                 target.manifest().model.tokenizerVocab);
  SequenceState &state = draft.state();
  const bool stepsBack = stepBackOf(draft.manifest()) > 0;
  const int64_t count =
      std::min<int64_t>(stepsBack ? state.maxStepping() : state.maxSequences(),
                        state.pages() / ceilDiv(positions, kPageTokens));
  places.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    // A copy of a sampler would have no room.
    Place &place = places.emplace_back(
        Place{state.open(), Sampler(greedy, logits, drawn)});
    state.reserveStates(place.sequence);
    place.ran.reserve(static_cast<size_t>(most));
    place.drafts.reserve(static_cast<size_t>(most));
  }
  batch.reserve(static_cast<size_t>(readTokens + count));
  owners.reserve(static_cast<size_t>(readTokens + count));
  madeCalls.reserve(static_cast<size_t>(most));
}

DraftModel::~DraftModel() {
  for (const Place &place : places)
    engine.state().close(place.sequence);
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

void DraftModel::empty(Place &place, int64_t first) {
  engine.state().truncate(place.sequence, 0);
  place.first = first;
  place.same = 0;
  place.ran.clear();
  place.drafts.clear();
}

void DraftModel::leave(Place &place) {
  empty(place, 0);
  known.at(place.track).place = nullptr;
  place.track = nullptr;
}

void DraftModel::end(const Track &track) {
  if (Place *const place = known.at(&track).place)
    leave(*place);
  known.erase(&track);
}

Place *DraftModel::takePlace(const Track &track) {
  // A track that waits for pages is not asked for.
  const auto found = std::ranges::find_if(places, [&](const Place &place) {
    return !place.track || place.asked + 1 < step;
  });
  if (found == places.end())
    return nullptr;
  if (found->track)
    leave(*found);
  found->track = &track;
  return &*found;
}

void DraftModel::keepUp(Place &place, std::span<const int32_t> text) {
  const int64_t size = std::ssize(text);
  const auto next = text.subspan(static_cast<size_t>(place.first + place.same));
  const auto right = std::ranges::mismatch(place.ran, next).in1;
  // The last token gives the first draft.
  const int64_t kept = std::min(place.same + (right - place.ran.begin()),
                                size - 1 - place.first);
  const int64_t ahead = size - place.first + most;
  if (ahead > positions || size - place.first - kept > kReadTokens) {
    const int64_t read = std::min(kReadTokens, positions / 2);
    return empty(place,
                 std::max<int64_t>(0, size - std::max<int64_t>(1, read)));
  }
  place.same = engine.state().reachable(place.sequence, kept);
  place.ran.clear();
  engine.state().truncate(place.sequence, place.same);
}

int64_t DraftModel::strength(const Track &track) {
  Known &of = known.at(&track);
  if (of.hasFailed)
    return -1;
  if (!of.place)
    of.place = takePlace(track);
  if (!of.place)
    return -1;
  of.place->asked = step;
  keepUp(*of.place, track.settled());
  return kModelStrength;
}

double DraftModel::secondsBehind(const Track &track) {
  const Place &place = *known.at(&track).place;
  const int64_t behind = track.settledSize() - place.first - place.same;
  return behind <= kTokensOfDraft
             ? 0
             : static_cast<double>(behind) * secondsOfToken;
}

//===----------------------------------------------------------------------===//
// Drafts
//===----------------------------------------------------------------------===//

void DraftModel::append(Place &place, std::span<const int32_t> text,
                        int64_t count) {
  const int64_t first = place.first + place.same;
  for (int64_t i = first; i < first + count; ++i) {
    batch.push_back({text[static_cast<size_t>(i)], place.sequence,
                     i - place.first, i + 1 == std::ssize(text)});
    owners.push_back(&place);
  }
  place.same += count;
}

void DraftModel::receive(std::span<const Engine::Row> rows) {
  const auto draw = [&](size_t i) {
    Place &place = *owners[rows[i].index];
    try {
      place.drafts.push_back(
          program.model.tokenOf(place.sampler.sample(rows[i].values, 0)));
    } catch (const Error &) {
      // No token can be drawn.
      place.count = 0;
    }
  };
  engine.forEach(rows.size(), std::ref(draw));
}

double DraftModel::run() {
  const int64_t start = steadyNanoseconds();
  for (const Failure &failure : engine.run(batch, receiver)) {
    const auto place =
        std::ranges::find(places, failure.sequence, &Place::sequence);
    known.at(place->track).hasFailed = true;
    leave(*place);
  }
  return static_cast<double>(steadyNanoseconds() - start) * 1e-9;
}

void DraftModel::prepare(std::span<const DraftOrder> orders) {
  ++step;
  madeCalls.clear();
  batch.clear();
  owners.clear();
  for (Place &place : places) {
    place.drafts.clear();
    place.count = 0;
  }
  // Until it knows how long that takes, it reads about one prompt.
  const int64_t mostRead = secondsOfToken > 0 ? readTokens : kReadTokens;
  for (const auto &[track, count, strength] : orders) {
    Place &place = *known.at(track).place;
    const std::span<const int32_t> text = track->settled();
    const int64_t behind = std::ssize(text) - place.first - place.same;
    const int64_t left = mostRead - std::ssize(batch);
    place.count = behind <= left ? count : 0;
    append(place, text, std::min(behind, left));
  }
  const auto read = std::ssize(batch);
  int64_t rows = std::ranges::count(batch, true, &Token::wanted);
  double seconds = read ? run() : 0;
  if (read > kTokensOfDraft * std::ssize(orders)) {
    const double each = seconds / static_cast<double>(read);
    secondsOfToken +=
        (secondsOfToken > 0 ? kReadRate : 1) * (each - secondsOfToken);
  } else if (rows) {
    madeCalls.push_back({rows, seconds});
  }
  for (int64_t made = 1; rows; ++made) {
    batch.clear();
    owners.clear();
    for (Place &place : places)
      if (place.track && place.count > made &&
          std::ssize(place.drafts) == made) {
        batch.push_back({place.drafts.back(), place.sequence,
                         place.same + std::ssize(place.ran), true});
        owners.push_back(&place);
        place.ran.push_back(place.drafts.back());
      }
    rows = std::ssize(batch);
    if (rows)
      madeCalls.push_back({rows, run()});
  }
}

void DraftModel::draft(const Track &track, int64_t count,
                       std::vector<int32_t> &tokens) {
  if (const Place *const place = known.at(&track).place)
    tokens.insert(tokens.end(), place->drafts.begin(),
                  place->drafts.begin() +
                      std::min(count, std::ssize(place->drafts)));
}

std::unique_ptr<Drafter> qwen::makeDraftModel(Engine &engine, Engine &draft) {
  return std::make_unique<DraftModel>(engine, draft);
}
