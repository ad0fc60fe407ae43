//===- AnswerHashes.cpp - Hashes of a model's answers, run in many ways ---===//
//
// answer-hashes MODEL THREADS:PIECE:SEQUENCES:CACHE...
//
// For each argument, runs the first SEQUENCES of eight fixed prompts together,
// in calls of at most PIECE tokens (0: the manifest's limit), and prints a line
// with a hash of each prompt's logits (all bits of all positions). CACHE is
// cold, preempted, shared or stepped. The last line has tokens that are drawn
// with a seed. test/Integration/answers.py compares the lines.
//
//===----------------------------------------------------------------------===//

#include "engine/Engine.h"
#include "engine/Session.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace qwen;

namespace {
/// A page has 64 positions: the first prompt crosses a border.
constexpr int64_t kLengths[] = {72, 5, 9, 3, 7, 1, 6, 2};
constexpr size_t kPrompts = std::size(kLengths);

/// One of the ways to run the prompts.
struct Way {
  int32_t threads;
  int64_t piece;
  size_t sequences;
  std::string cache;
};

Way parseWay(const char *text) {
  Way way = {};
  int end = 0;
  if (sscanf(text, "%" SCNd32 ":%" SCNd64 ":%zu:%n", &way.threads, &way.piece,
             &way.sequences, &end) != 3 ||
      end == 0 || way.sequences < 1 || way.sequences > kPrompts)
    throw Error("'" + std::string(text) +
                "' is not THREADS:PIECE:SEQUENCES:CACHE");
  way.cache = text + end;
  return way;
}

/// The same ids on every machine (splitmix64).
std::vector<int32_t> prompt(size_t number, int64_t vocab) {
  std::vector<int32_t> ids;
  uint64_t state = number << 32;
  for (int64_t i = 0; i < kLengths[number]; ++i) {
    uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    ids.push_back(
        static_cast<int32_t>((z ^ z >> 31) % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

/// Runs prompts and keeps their logits.
class Runner {
public:
  Runner(Engine &engine, size_t count) : engine(engine) {
    const ModelInfo &model = engine.manifest().model;
    for (size_t i = 0; i < count; ++i) {
      prompts.push_back(prompt(i, model.tokenizerVocab));
      logits.emplace_back(prompts[i].size() *
                          static_cast<size_t>(model.vocabSize));
      known.emplace_back(prompts[i].size());
      open.push_back(engine.state().open());
    }
  }
  ~Runner() {
    for (SequenceId sequence : open)
      engine.state().close(sequence);
  }
  Runner(const Runner &) = delete;
  Runner &operator=(const Runner &) = delete;

  void run(const std::string &cache) {
    if (cache == "preempted")
      preempt();
    else if (cache == "shared")
      share();
    else if (cache == "stepped")
      step();
    else if (cache != "cold")
      throw Error("'" + cache + "' is not cold, preempted, shared or stepped");
    advance([](int64_t length) { return length; });
  }

  uint64_t hash(size_t i) const {
    return XXH3_64bits(logits[i].data(), logits[i].size() * sizeof(float));
  }

private:
  /// Runs every prompt up to position upTo(its length). One token of each
  /// prompt follows the other, so that calls are ragged. `others` run with
  /// them.
  template <typename UpTo>
  void advance(UpTo upTo, std::vector<Token> others = {}) {
    std::vector<Token> batch;
    std::vector<size_t> promptOf;
    for (int64_t position = 0; position < *std::ranges::max_element(kLengths);
         ++position) {
      for (size_t i = 0; i < prompts.size(); ++i)
        if (position >= engine.state().length(open[i]) &&
            position < upTo(kLengths[i])) {
          batch.push_back({prompts[i][static_cast<size_t>(position)], open[i],
                           position, true});
          promptOf.push_back(i);
        }
      for (const Token &token : others)
        if (token.position == position) {
          batch.push_back(token);
          promptOf.push_back(kPrompts);
        }
    }
    engine.forward(batch, [&](size_t index, std::span<float> row) {
      if (promptOf[index] != kPrompts)
        keep(promptOf[index], static_cast<size_t>(batch[index].position), row);
    });
  }

  /// Stores a row. A row that is already stored must be the same.
  void keep(size_t i, size_t position, std::span<const float> row) {
    float *to = logits[i].data() + position * row.size();
    if (known[i][position] && memcmp(to, row.data(), row.size_bytes()) != 0)
      throw Error("logits of prompt " + std::to_string(i) + ", position " +
                  std::to_string(position) + " are others the second time");
    std::ranges::copy(row, to);
    known[i][position] = true;
  }

  /// Halfway, another sequence takes the pages of the first prompt, which must
  /// run again while the others continue.
  void preempt() {
    advance([](int64_t length) { return length / 2; });
    engine.state().close(open[0]);
    const SequenceId intruder = engine.state().open();
    std::vector<Token> tokens;
    for (int64_t i = 0; i < kLengths[0] / 2; ++i)
      tokens.push_back({prompts[0].back(), intruder, i, false});
    engine.forward(tokens, [](size_t, std::span<float>) {});
    engine.state().close(intruder);
    open[0] = engine.state().open();
  }

  /// Every prompt continues in a branch, and its first sequence continues with
  /// other tokens.
  void share() {
    advance([](int64_t length) { return length - length / 12 - 1; });
    std::vector<Token> others;
    std::vector<SequenceId> parents = open;
    for (size_t i = 0; i < prompts.size(); ++i) {
      open[i] =
          engine.state().branch(parents[i], engine.state().length(parents[i]));
      others.push_back({prompts[i].front(), parents[i],
                        engine.state().length(parents[i]), false});
    }
    advance([](int64_t length) { return length; }, others);
    for (SequenceId parent : parents)
      engine.state().close(parent);
  }

  /// Prompts run in three parts. After each, other tokens run and are taken
  /// back: two, or as many as a state can step back.
  void step() {
    SequenceState &state = engine.state();
    int64_t count = 2;
    if (state.fixedBytes())
      count = std::min(count, engine.manifest().forward().limits.stepBack);
    for (const SequenceId sequence : open)
      state.reserveStates(sequence);
    for (int64_t part : {1, 2, 3}) {
      advance([&](int64_t length) { return length * part / 4; });
      std::vector<Token> others;
      std::vector<int64_t> lengths;
      for (size_t i = 0; i < prompts.size(); ++i) {
        lengths.push_back(state.length(open[i]));
        for (int64_t next = 0; next < count; ++next)
          others.push_back(
              {prompts[i].front(), open[i], lengths[i] + next, false});
      }
      advance([](int64_t) { return 0; }, others);
      for (size_t i = 0; i < prompts.size(); ++i)
        state.truncate(open[i], lengths[i]);
    }
  }

  Engine &engine;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<bool>> known;
  std::vector<SequenceId> open;
};

void printHashes(const Artifact &artifact, const Way &way) {
  ThreadPool pool(way.threads);
  Engine engine(artifact, pool,
                {.sequences = static_cast<int32_t>(2 * way.sequences),
                 .callTokens = way.piece});
  Runner runner(engine, way.sequences);
  runner.run(way.cache);
  for (size_t i = 0; i < way.sequences; ++i)
    printf("%016" PRIx64 "%c", runner.hash(i),
           i + 1 == way.sequences ? '\n' : ' ');
  fflush(stdout);
}

void printDrawn(const Artifact &artifact) {
  ThreadPool pool(1);
  Engine engine(artifact, pool);
  Session session(engine, {.temperature = 0.9f,
                           .topK = 50,
                           .topP = 0.95,
                           .repetitionPenalty = 1.1f,
                           .seed = 7});
  session.setTokens(prompt(1, engine.manifest().model.tokenizerVocab));
  for (int i = 0; i < 12; ++i)
    printf("%" PRId32 "%c", session.next().value(), i == 11 ? '\n' : ' ');
}
} // namespace

int main(int argc, char **argv) {
  try {
    if (argc < 2)
      throw Error(
          "usage: answer-hashes MODEL THREADS:PIECE:SEQUENCES:CACHE...");
    const Artifact artifact(argv[1]);
    for (int i = 2; i < argc; ++i)
      printHashes(artifact, parseWay(argv[i]));
    printDrawn(artifact);
  } catch (const std::exception &error) {
    fprintf(stderr, "answer-hashes: %s\n", error.what());
    return 1;
  }
  return 0;
}
