//===- Mtp.cpp - Drafts by the checkpoint's draft head --------------------===//
//
// The head reads the row that `forward` leaves of each token behind the final
// norm, and the token after it. From its guess it goes on with its own row. Its
// keys and values are in sequences of its own: it sees the end of a text, whose
// positions begin at 0. docs/decisions/0039 has the reasons.
//
//===----------------------------------------------------------------------===//

#include "engine/Engine.h"
#include "engine/Job.h"
#include "engine/Step.h"
#include "engine/drafters/Drafters.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/ABI/DraftHead.h"
#include "qwen/Support/Error.h"

#include <algorithm>
#include <unordered_map>

using namespace qwen;

/// The rows of `forward` that are kept of a track: the head begins a text with
/// as many, and reads those that came while no drafts paid.
static constexpr int64_t kKeptRows = 32;

/// The positions of a sequence of the head. A longer one begins again.
static constexpr int64_t kPositions = 2048;

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
};

class Mtp final : public Drafter {
public:
  explicit Mtp(Engine &engine)
      : kept(std::min(kKeptRows, limitsOf(engine).tokens)),
        width(static_cast<size_t>(engine.manifest().model.hiddenSize)),
        head(engine.beside(optionsOf(engine))) {
    given.reserve(static_cast<size_t>(kept) * width);
    batch.reserve(static_cast<size_t>(kept));
  }

  void begin(const Track &track) override {
    Text &text = texts[&track];
    text.rows.resize(static_cast<size_t>(kept) * width);
  }
  void end(const Track &track) override {
    const auto found = texts.find(&track);
    release(found->second);
    texts.erase(found);
  }

  void follow(Step &step) override {
    for (const auto &[track, position, row] : step.tokens()) {
      const auto found = texts.find(track);
      // The token behind a wrong draft is no part of the text.
      if (const int64_t last = track->settledSize() - 1;
          found != texts.end() && position < last && position >= last - kept)
        keep(found->second, position,
             step.row(head->manifest().forward().name, kHiddenRowsName, row));
    }
  }

  int64_t strength(const Track &track) override {
    const Text &text = texts.at(&track);
    const bool hasRow =
        text.end > text.first && text.end == track.settledSize() - 1;
    return hasRow && !text.isBroken ? 0 : -1;
  }

  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    Text &text = texts.at(&track);
    try {
      read(text, track.settled(), most);
      for (int64_t i = 0;; ++i) {
        tokens.push_back(best());
        if (i + 1 == most)
          break;
        const std::span<const float> row =
            head->row(kDraftHeadName, kHiddenRowsName, 0);
        given.assign(row.begin(), row.end());
        batch.assign(1, {tokens.back(), text.sequence, text.length + i, true});
        call();
      }
    } catch (const Error &error) {
      if (error.kind() != ErrorKind::NotFinite)
        throw;
      text.isBroken = true;
      release(text);
    }
  }

private:
  static const LimitsInfo &limitsOf(const Engine &engine) {
    return engine.manifest().draftHead()->limits;
  }
  /// Each sequence has all its pages. Only the layer of the head is written.
  static EngineOptions optionsOf(const Engine &engine) {
    EngineOptions options;
    options.sequences = engine.state().maxSequences();
    options.kvPages =
        options.sequences *
        ceilDiv(std::min(kPositions, engine.manifest().model.context),
                kPageTokens);
    options.snapshotBytes = 0;
    return options;
  }

  float *rowOf(Text &text, int64_t token) const {
    return text.rows.data() + static_cast<size_t>(token % kept) * width;
  }

  void keep(Text &text, int64_t token, std::span<const float> row) const {
    if (token > text.end || token < text.first)
      text.first = text.end = token;
    std::ranges::copy(row, rowOf(text, token));
    text.end = std::max(text.end, token + 1);
    text.first = std::max(text.first, text.end - kept);
  }

  void release(Text &text) const {
    if (text.sequence >= 0)
      head->state().close(text.sequence);
    text.sequence = -1;
    text.length = 0;
  }

  /// Gives a text a sequence. Texts whose tracks wait have no use for theirs.
  void open(Text &text) {
    if (head->state().freeSequences() == 0)
      for (auto &[track, other] : texts)
        if (track->sequence() < 0)
          release(other);
    text.sequence = head->state().open();
  }

  /// Runs the rows of `text` that the head has not run, with the tokens after
  /// them, over positions that it has run from its own rows; `most` drafts will
  /// follow.
  void read(Text &text, std::span<const int32_t> settled, int64_t most) {
    if (text.sequence < 0)
      open(text);
    const int64_t room =
        std::min(kPositions, head->manifest().model.context) - most;
    if (text.length == 0 || text.fed < text.first || text.fed >= text.end ||
        text.length + text.end - text.fed > room) {
      text.length = 0;
      text.fed = std::max(text.first, text.end - room);
    }
    given.clear();
    batch.clear();
    for (; text.fed < text.end; ++text.fed, ++text.length) {
      const float *row = rowOf(text, text.fed);
      given.insert(given.end(), row, row + width);
      batch.push_back({settled[static_cast<size_t>(text.fed) + 1],
                       text.sequence, text.length, text.fed + 1 == text.end});
    }
    call();
  }

  void call() {
    const InputRows rows = {kHiddenRowsName, given};
    head->call(kDraftHeadName, batch, {&rows, 1});
  }

  /// The likeliest token.
  int32_t best() const {
    const ProgramInfo &program = *head->manifest().draftHead();
    const std::span<const float> logits =
        head->row(kDraftHeadName, kLogitsName, 0)
            .first(static_cast<size_t>(head->manifest().tokenLogits(program)));
    return program.model.tokenOf(std::ranges::max_element(logits) -
                                 logits.begin());
  }

  const int64_t kept;
  const size_t width;
  const std::unique_ptr<Engine> head;
  std::unordered_map<const Track *, Text> texts;
  /// The tokens of a call, and the rows before them.
  std::vector<Token> batch;
  std::vector<float> given;
};
} // namespace

std::unique_ptr<Drafter> qwen::makeMtp(Engine &engine) {
  return std::make_unique<Mtp>(engine);
}
