//===- Mtp.cpp - Drafts by the checkpoint's draft head --------------------===//
//
// The head reads the row that `forward` leaves of each token behind the final
// norm, and the token after it. From its guess it goes on with its own row. Its
// keys and values are in sequences of its own: it sees the end of a text, whose
// positions begin at 0. The drafts of a step run as one batch, a place at a
// time. docs/decisions/0039 has the reasons.
//
//===----------------------------------------------------------------------===//

#include "engine/Engine.h"
#include "engine/Job.h"
#include "engine/Logprobs.h"
#include "engine/SteadyClock.h"
#include "engine/Step.h"
#include "engine/drafters/Drafters.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/Program.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>

using namespace qwen;

/// The rows of `forward` that are kept of a track: the head begins a text with
/// as many, and reads those that came while no drafts paid.
static constexpr int64_t kKeptRows = 32;

/// The positions of a sequence of the head. A longer one begins again.
static constexpr int64_t kHeadPositions = 2048;

/// The share that others measured of trained heads, over prose and code.
static constexpr double kHeadShare = 0.65;

/// How fast the measured time of a read row changes.
static constexpr double kRowRate = 0.3;

namespace {
/// A track, as far as the head knows it.
struct Text {
  /// The rows of the tokens [first, end) of the track, the last ones: the row
  /// of token i is number i % kept.
  std::vector<float> rows;
  int64_t first = 0, end = 0;
  /// The sequence of the head; -1: none. It has run the rows up to token `fed`,
  /// as its first `length` positions.
  SequenceId sequence = -1;
  int64_t fed = 0, length = 0;
  /// A number was not finite.
  bool isBroken = false;
  /// The drafts of this step, and the head's own row of the last one.
  std::vector<int32_t> drafts;
  std::vector<float> own;

  /// Rows that the head has not run.
  int64_t unread() const { return sequence < 0 ? end - first : end - fed; }
};

/// A text that gets drafts in this step.
struct Turn {
  Text *text;
  const Track *track;
  int64_t count;
};

class Mtp final : public Drafter {
public:
  explicit Mtp(Engine &engine);

  void begin(const Track &track) override;
  void end(const Track &track) override;
  void follow(Step &step) override;
  int64_t strength(const Track &track) override;
  std::optional<double> usualShare() const override { return kHeadShare; }
  int64_t mostDrafts() const override { return most; }
  double secondsBehind(const Track &track) override;
  void prepare(std::span<const DraftOrder> orders) override;
  std::span<const DraftCall> calls() const override { return madeCalls; }
  void draft(const Track &track, int64_t count,
             std::vector<int32_t> &tokens) override;

private:
  float *rowOf(Text &text, int64_t token) const {
    return text.rows.data() + static_cast<size_t>(token % kept) * width;
  }
  void keep(Text &text, int64_t token, std::span<const float> row) const;
  void release(Text &text) const;
  void open(Text &text);
  void begin(Text &text, int64_t count);
  /// Tokens of a text that the call for its draft at `place` runs.
  static int64_t tokensOf(const Text &text, int64_t place) {
    return place == 0 ? text.end - text.fed : 1;
  }
  void append(const Turn &turn, int64_t place);
  /// Makes the drafts at `place` of all turns.
  void run(int64_t place);
  /// Makes the drafts of some turns, whose tokens are the batch.
  void call(std::span<const Turn> of, int64_t place);
  void receive(std::span<const Turn> of, int64_t place);
  /// Counts a call that ran `tokens` tokens for `rows` drafts.
  void measure(int64_t tokens, int64_t rows, double seconds);
  /// The likeliest token by row `index` of the last call.
  int32_t best(size_t index) const;

  const int64_t kept;
  const size_t width;
  const std::unique_ptr<Engine> head;
  const ProgramInfo &program;
  /// The positions of a sequence, and the most drafts of a step.
  const int64_t positions, most;
  std::unordered_map<const Track *, Text> texts;
  std::vector<Turn> turns;
  /// The tokens of a call, and the rows before them.
  std::vector<Token> batch;
  std::vector<float> given;
  std::vector<DraftCall> madeCalls;
  double secondsOfRow = 0;
};
} // namespace

/// Each sequence has all its pages. Only the layer of the head is written.
static EngineOptions headOptions(const Engine &engine) {
  EngineOptions options;
  options.sequences = engine.state().maxSequences();
  options.kvPages =
      options.sequences *
      ceilDiv(std::min(kHeadPositions, engine.manifest().model.context),
              kPageTokens);
  options.snapshotBytes = 0;
  return options;
}

Mtp::Mtp(Engine &engine)
    : kept(std::min(kKeptRows, engine.manifest().draftHead()->limits.tokens)),
      width(static_cast<size_t>(engine.manifest().model.hiddenSize)),
      head(engine.beside(headOptions(engine))),
      program(*head->manifest().draftHead()),
      positions(std::min(kHeadPositions, head->manifest().model.context)),
      most(std::max<int64_t>(
          1, std::min(stepBackOf(engine.manifest()), positions / 4))) {
  const auto sequences = static_cast<size_t>(head->state().maxSequences());
  const auto tokens = static_cast<size_t>(program.limits.tokens);
  const size_t longest =
      std::min(tokens, static_cast<size_t>(kept) * sequences);
  given.reserve(longest * width);
  batch.reserve(longest);
  turns.reserve(sequences);
  madeCalls.reserve(static_cast<size_t>(most) * sequences);
}

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

void Mtp::begin(const Track &track) {
  Text &text = texts[&track];
  text.rows.resize(static_cast<size_t>(kept) * width);
  text.own.resize(width);
  text.drafts.reserve(static_cast<size_t>(most));
}

void Mtp::end(const Track &track) {
  const auto found = texts.find(&track);
  release(found->second);
  texts.erase(found);
}

void Mtp::keep(Text &text, int64_t token, std::span<const float> row) const {
  if (token > text.end || token < text.first)
    text.first = text.end = token;
  std::ranges::copy(row, rowOf(text, token));
  text.end = std::max(text.end, token + 1);
  text.first = std::max(text.first, text.end - kept);
}

void Mtp::follow(Step &step) {
  for (const auto &[track, position, row] : step.tokens()) {
    const auto found = texts.find(track);
    // The token behind a wrong draft is no part of the text.
    if (const int64_t last = track->settledSize() - 1;
        found != texts.end() && position < last && position >= last - kept)
      keep(found->second, position,
           step.row(head->manifest().forward().name, kHiddenRowsName, row));
  }
}

int64_t Mtp::strength(const Track &track) {
  const Text &text = texts.at(&track);
  const bool hasRow =
      text.end > text.first && text.end == track.settledSize() - 1;
  return hasRow && !text.isBroken ? kModelStrength : -1;
}

double Mtp::secondsBehind(const Track &track) {
  // A step with drafts leaves a row of each that was right, and one more.
  const int64_t rows = texts.at(&track).unread();
  return rows <= most + 1 ? 0 : static_cast<double>(rows) * secondsOfRow;
}

void Mtp::release(Text &text) const {
  if (text.sequence >= 0)
    head->state().close(text.sequence);
  text.sequence = -1;
  text.length = 0;
}

/// Gives a text a sequence. Texts whose tracks wait have no use for theirs.
void Mtp::open(Text &text) {
  if (head->state().freeSequences() == 0)
    for (auto &[track, other] : texts)
      if (track->sequence() < 0)
        release(other);
  text.sequence = head->state().open();
}

/// Finds the rows of a text that the head reads before `count` drafts: those
/// that it has not run, over positions that it ran from its own rows.
void Mtp::begin(Text &text, int64_t count) {
  text.drafts.clear();
  if (text.sequence < 0)
    open(text);
  const int64_t room = positions - count;
  if (text.length == 0 || text.fed < text.first || text.fed >= text.end ||
      text.length + text.end - text.fed > room) {
    text.length = 0;
    text.fed = std::max(text.first, text.end - room);
  }
}

//===----------------------------------------------------------------------===//
// Drafts
//===----------------------------------------------------------------------===//

void Mtp::append(const Turn &turn, int64_t place) {
  Text &text = *turn.text;
  if (place > 0) {
    given.insert(given.end(), text.own.begin(), text.own.end());
    return batch.push_back(
        {text.drafts.back(), text.sequence, text.length + place - 1, true});
  }
  const std::span<const int32_t> settled = turn.track->settled();
  for (int64_t token = text.fed; token < text.end; ++token) {
    const float *row = rowOf(text, token);
    given.insert(given.end(), row, row + width);
    batch.push_back({settled[static_cast<size_t>(token) + 1], text.sequence,
                     text.length + token - text.fed, token + 1 == text.end});
  }
}

/// The place of the first of the greatest logits.
static int64_t greatestPlace(std::span<const float> logits) {
  constexpr size_t kBlock = 1024;
  float greatest = -INFINITY;
  std::span<const float> best = logits.first(0);
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::span<const float> block =
        logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    if (const float of = greatestLogit(block); of > greatest) {
      greatest = of;
      best = block;
    }
  }
  return std::ranges::find(best, greatest) - best.begin() +
         (best.data() - logits.data());
}

int32_t Mtp::best(size_t index) const {
  return program.model.tokenOf(greatestPlace(
      head->row(program.name, kLogitsName, index)
          .first(static_cast<size_t>(head->manifest().tokenLogits(program)))));
}

void Mtp::receive(std::span<const Turn> of, int64_t place) {
  const auto take = [&](size_t i) {
    Text &text = *of[i].text;
    text.drafts.push_back(best(i));
    std::ranges::copy(head->row(program.name, kHiddenRowsName, i),
                      text.own.begin());
    if (place == 0) {
      text.length += text.end - text.fed;
      text.fed = text.end;
    }
  };
  head->forEach(of.size(), std::ref(take));
}

void Mtp::measure(int64_t tokens, int64_t rows, double seconds) {
  if (tokens <= (most + 1) * rows)
    return madeCalls.push_back({rows, seconds});
  const double each = seconds / static_cast<double>(tokens);
  secondsOfRow += (secondsOfRow > 0 ? kRowRate : 1) * (each - secondsOfRow);
}

void Mtp::call(std::span<const Turn> of, int64_t place) {
  const InputRows rows = {kHiddenRowsName, given};
  const int64_t start = steadyNanoseconds();
  try {
    head->call(program.name, batch, {&rows, 1});
  } catch (const Error &error) {
    if (error.kind() != ErrorKind::NotFinite)
      throw;
    // Each one alone, which tells whose numbers they are.
    for (const Turn &turn : of) {
      if (of.size() == 1) {
        turn.text->isBroken = true;
        release(*turn.text);
        continue;
      }
      given.clear();
      batch.clear();
      append(turn, place);
      call({&turn, 1}, place);
    }
    return;
  }
  measure(std::ssize(batch), std::ssize(of),
          static_cast<double>(steadyNanoseconds() - start) * 1e-9);
  receive(of, place);
}

void Mtp::run(int64_t place) {
  for (auto next = turns.begin(); next != turns.end();) {
    const auto first = next;
    given.clear();
    batch.clear();
    for (; next != turns.end() && next - first < program.limits.rows &&
           std::ssize(batch) + tokensOf(*next->text, place) <=
               program.limits.tokens;
         ++next)
      append(*next, place);
    call({first, next}, place);
  }
}

void Mtp::prepare(std::span<const DraftOrder> orders) {
  madeCalls.clear();
  turns.clear();
  for (const auto &[track, count, strength] : orders) {
    Text &text = texts.at(track);
    begin(text, count);
    turns.push_back({&text, track, count});
  }
  for (int64_t place = 0; !turns.empty(); ++place) {
    run(place);
    std::erase_if(turns, [&](const Turn &turn) {
      return turn.count == place + 1 || turn.text->isBroken;
    });
  }
}

void Mtp::draft(const Track &track, int64_t count,
                std::vector<int32_t> &tokens) {
  const std::vector<int32_t> &drafts = texts.at(&track).drafts;
  tokens.insert(tokens.end(), drafts.begin(),
                drafts.begin() + std::min(count, std::ssize(drafts)));
}

std::unique_ptr<Drafter> qwen::makeMtp(Engine &engine) {
  return std::make_unique<Mtp>(engine);
}
