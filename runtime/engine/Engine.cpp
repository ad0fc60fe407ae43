//===- Engine.cpp - Runs ragged batches through a model -------------------===//

#include "engine/Engine.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

using namespace qwen;

static constexpr int64_t kNoStop = INT64_MAX;

/// The most that a program of the manifest needs.
template <typename Of>
static int64_t most(const Manifest &manifest, const Of &needed) {
  int64_t result = 0;
  for (const ProgramInfo &program : manifest.programs)
    result = std::max<int64_t>(result, needed(program));
  return result;
}

/// Floats of the logits, and of the hidden rows, in Engine::result.
static int64_t logitValues(const Manifest &manifest) {
  return most(manifest, [&](const ProgramInfo &program) {
    const bool isUsed = &program != &manifest.forward() ||
                        manifest.model.output.kind != OutputKind::None;
    const ProgramValue *logits = program.logits();
    return logits && isUsed ? program.limits.rows * logits->stride : 0;
  });
}

static size_t resultBytes(const Manifest &manifest) {
  const int64_t hidden =
      manifest.forward().limits.rows * manifest.model.hiddenSize;
  return static_cast<size_t>(logitValues(manifest) + hidden) * sizeof(float);
}

/// The most that a call of `program` has of the program's own counts together.
static int64_t ownTokens(const ProgramInfo &program) {
  int64_t sum = 0;
  for (const CountLimit &count : program.limits.counts)
    sum += count.most;
  return sum;
}

static int64_t arenaBytes(const Manifest &manifest) {
  return most(manifest, std::mem_fn(&ProgramInfo::arenaBytes));
}

/// Memory of a running model besides arena, result and KV cache: 4 MiB with the
/// shape of Qwen2.5-0.5B, and a reserve. The mapped file does not count,
/// because the system can take its memory pages back.
static constexpr uint64_t kProcessBytes = uint64_t{16} << 20;

/// Sequences that keep states for drafts at the same time. With more answers in
/// a step, each draft costs more and few pay (docs/decisions/0039).
static constexpr int32_t kDraftingSequences = 4;

/// Such states take at most this part, 1 / kStepsDivisor, of the spare memory.
static constexpr uint64_t kStepsDivisor = 4;

/// The options, and the pages, snapshots and further states that they ask for.
struct qwen::WantedState {
  const EngineOptions &options;
  int64_t pages, snapshots, snapshotBytes;
  /// Number of sequences that keep several states, and the bytes of the further
  /// states of one sequence.
  int64_t stepping, stepBytes;

  WantedState(const Manifest &manifest, const EngineOptions &engineOptions)
      : options(engineOptions), pages(options.kvPages),
        snapshotBytes(bytesOf(manifest.caches, CacheKind::Fixed)),
        stepping(std::max(1, options.sequences)),
        stepBytes(stepBackBytesOf(manifest.caches)) {
    // Without drafts, the caller of the engine may step back all.
    if (options.speculate != Speculate::Off)
      stepping = std::min<int64_t>(stepping, kDraftingSequences);
    // Looking for a snapshot reads the entries of all.
    constexpr int64_t kMostSnapshots = 1024;
    snapshots = snapshotBytes ? std::min(kMostSnapshots,
                                         options.snapshotBytes / snapshotBytes)
                              : 0;
    if (!pages)
      pages = std::max(1, options.sequences) *
              ceilDiv(manifest.model.context, kPageTokens);
  }
};

/// What an engine asks of a budget. Weights that are not locked come after the
/// pages of one sequence, since the system can take their memory back, and
/// before further pages. Where all weights count (MemoryBudget::countWeights),
/// an engine needs the pages of one sequence and leaves half of what is free.
static std::array<MemoryNeed, 8> memoryNeeds(const Manifest &manifest,
                                             uint64_t weightBytes,
                                             const WantedState &wanted,
                                             bool countsWeights) {
  using enum MemoryUse;
  const auto page = static_cast<uint64_t>(manifest.kv.pageBytes),
             snapshot = static_cast<uint64_t>(wanted.snapshotBytes),
             calls = static_cast<uint64_t>(arenaBytes(manifest)) +
                     resultBytes(manifest),
             states = snapshot * static_cast<uint64_t>(
                                     std::max(1, wanted.options.sequences)),
             steps = static_cast<uint64_t>(wanted.stepBytes);
  const int64_t pages = std::max<int64_t>(1, wanted.pages),
                first = std::min(pages,
                                 ceilDiv(manifest.model.context, kPageTokens));
  const auto firstBytes = static_cast<uint64_t>(first) * page;
  // PrefixCache has a page, and a snapshot with its last page.
  const uint64_t process =
      kProcessBytes +
      (wanted.options.isStored ? page + (snapshot ? snapshot + page : 0) : 0);
  const bool needsWeights = wanted.options.lock || countsWeights;
  return {{{.use = Process, .bytes = process, .least = process},
           {.use = Calls, .bytes = calls, .least = calls},
           {.use = Sequences, .bytes = states, .least = states},
           {.use = Snapshots,
            .bytes = static_cast<uint64_t>(wanted.snapshots) * snapshot,
            .least = 0,
            .unit = std::max<uint64_t>(1, snapshot),
            .divisor = 4,
            .displacesWeights = true},
           {.use = Pages,
            .bytes = firstBytes,
            .least = countsWeights ? firstBytes : page,
            .unit = std::max<uint64_t>(1, page),
            .displacesWeights = true},
           {.use = Steps,
            .bytes = static_cast<uint64_t>(wanted.stepping) * steps,
            .least = 0,
            .unit = std::max<uint64_t>(1, steps),
            .divisor = kStepsDivisor,
            .displacesWeights = true},
           {.use = Weights,
            .bytes = weightBytes,
            .least = needsWeights ? weightBytes : 0},
           {.use = Pages,
            .bytes = static_cast<uint64_t>(pages - first) * page,
            .least = 0,
            .unit = std::max<uint64_t>(1, page),
            .divisor = countsWeights ? uint64_t{2} : 1}}};
}

static MemoryLease takeMemory(const Manifest &manifest, uint64_t weightBytes,
                              const WantedState &wanted, MemoryBudget &budget) {
  return budget.take(
      manifest.model.name,
      memoryNeeds(manifest, weightBytes, wanted, budget.countsWeights()));
}

uint64_t qwen::leastMemory(const Artifact &artifact,
                           const EngineOptions &options) {
  const Manifest &manifest = artifact.manifest();
  uint64_t sum = 0;
  for (const MemoryNeed &need :
       memoryNeeds(manifest, artifact.header().weights.size,
                   WantedState(manifest, options), /*countsWeights=*/true))
    if (__builtin_add_overflow(sum, need.least, &sum))
      return UINT64_MAX;
  return sum;
}

/// Makes the caches that the options ask for, or fewer pages, snapshots and
/// further states if the lease has not more.
static SequenceState makeState(const Manifest &manifest,
                               const WantedState &wanted,
                               const MemoryLease &lease,
                               const std::string &allows) {
  const auto of = [&](MemoryUse use, int64_t bytes, int64_t most) {
    return bytes
               ? std::min(most, static_cast<int64_t>(lease.bytes(use)) / bytes)
               : most;
  };
  const int64_t pages =
      of(MemoryUse::Pages, manifest.kv.pageBytes, wanted.pages);
  return {manifest.caches,
          {.pages = pages,
           .sequences = wanted.options.sequences,
           .context = manifest.model.context,
           .snapshots = static_cast<int32_t>(of(
               MemoryUse::Snapshots, wanted.snapshotBytes, wanted.snapshots)),
           .stepping = static_cast<int32_t>(
               of(MemoryUse::Steps, wanted.stepBytes, wanted.stepping)),
           .whyNotMore = pages < wanted.pages ? " (" + allows + ")" : ""},
          manifest.programs};
}

static int64_t tokensPerCall(const Manifest &manifest,
                             const EngineOptions &options) {
  if (options.callTokens < 0)
    throw Error("the tokens of a call are " +
                std::to_string(options.callTokens) +
                " when at least 1 is needed");
  if (options.callTokens == 0)
    return manifest.forward().limits.tokens;
  return std::min(options.callTokens, manifest.forward().limits.tokens);
}

std::vector<ForwardFn *> qwen::findPrograms(const Artifact &artifact,
                                            const ElfMapping &code) {
  const TargetInfo &target = artifact.selectTarget(hostArch(), hostFeatures());
  std::vector<ForwardFn *> entries;
  for (const ProgramInfo &program : artifact.manifest().programs) {
    const std::string name = program.name + "." + target.name;
    entries.push_back(code.function<ForwardFn>(name));
    if (!entries.back())
      throw Error(artifact.path() + " is damaged: it has no function " + name);
  }
  return entries;
}

/// The bases of the model's image and of the manifest's others.
static std::vector<const uint8_t *> basesOf(std::span<const WeightImage> images,
                                            const Manifest &manifest) {
  std::vector<const uint8_t *> bases = {images.front().data()};
  for (const ImageInfo &needed : manifest.images) {
    const bool isGiven = bases.size() < images.size();
    if (!isGiven || images[bases.size()].size() < needed.bytes)
      throw Error(
          manifest.model.name + " needs the weight image " +
          quote(needed.name) + " of " + std::to_string(needed.bytes) +
          " bytes, and has " +
          (isGiven ? std::to_string(images[bases.size()].size()) : "none"));
    bases.push_back(images[bases.size()].data());
  }
  return bases;
}

/// A pointer to what the caller owns.
static std::shared_ptr<ThreadPool> lent(ThreadPool &pool) {
  return {std::shared_ptr<void>(), &pool};
}

Engine::Engine(const Artifact &artifact, ThreadPool &pool,
               const EngineOptions &options)
    : Engine(artifact, lent(pool), std::make_shared<MemoryBudget>(), options) {}

Engine::Engine(const Artifact &artifact, std::shared_ptr<ThreadPool> pool,
               const std::shared_ptr<MemoryBudget> &budget,
               const EngineOptions &options, const uint8_t *weights)
    : Engine(artifact.manifest(),
             std::array{WeightImage(weights ? weights : artifact.weights(),
                                    artifact.header().weights.size)},
             weights ? 0 : artifact.header().weights.size, {}, std::move(pool),
             *budget, WantedState(artifact.manifest(), options)) {
  // Before the code is checked: an error about the target says more than one
  // about a checksum.
  artifact.selectTarget(hostArch(), hostFeatures());
  code = std::make_unique<const ElfMapping>(artifact.loadCode());
  entries = findPrograms(artifact, *code);
  if (weights)
    return;
  if (options.lock)
    artifact.lock();
  else
    artifact.readAhead();
  if (options.check == WeightCheck::Now)
    artifact.checkWeights();
  else if (options.check == WeightCheck::Background)
    checker.emplace(artifact);
}

Engine::Engine(const Manifest &manifest, const uint8_t *weights,
               std::vector<ForwardFn *> entries, ThreadPool &pool,
               const EngineOptions &options)
    : Engine(manifest, std::array{WeightImage(weights, size_t{0})},
             std::move(entries), pool, options) {}

Engine::Engine(const Manifest &manifest, std::span<const WeightImage> images,
               std::vector<ForwardFn *> entries, ThreadPool &pool,
               const EngineOptions &options)
    : Engine(manifest, images, 0, std::move(entries), lent(pool),
             *std::make_shared<MemoryBudget>(),
             WantedState(manifest, options)) {}

Engine::Engine(const Manifest &manifest, std::span<const WeightImage> images,
               uint64_t weightBytes, std::vector<ForwardFn *> entries,
               std::shared_ptr<ThreadPool> threadPool, MemoryBudget &budget,
               const WantedState &wanted)
    : model(manifest), images(basesOf(images, manifest)),
      entries(std::move(entries)), pool(std::move(threadPool)),
      allowed(budget.describe()),
      lease(takeMemory(manifest, weightBytes, wanted, budget)),
      sequenceState(makeState(manifest, wanted, lease, allowed)),
      callTokens(tokensPerCall(manifest, wanted.options)),
      everySnapshot(wanted.options.snapshotEvery),
      speculation(wanted.options.speculate),
      arena(Mapping::memory(static_cast<size_t>(arenaBytes(manifest)),
                            "the arena")),
      result(Mapping::memory(resultBytes(manifest), "the result")) {
  // Calls of other programs have as many tokens as their limits allow.
  const auto tokens = static_cast<size_t>(std::max(
      callTokens, most(manifest, [&](const ProgramInfo &program) {
        return &program == &manifest.forward() ? 0 : program.limits.tokens;
      })));
  for (std::vector<int32_t> *list : {&ids, &sequences, &positions, &windows})
    list->resize(tokens);
  ropePositions.resize(3 * tokens);
  const auto rows = static_cast<size_t>(
      most(manifest, [](const ProgramInfo &of) { return of.limits.rows; }));
  wantedTokens.reserve(rows);
  hiddenTokens.reserve(rows);
  flags.resize(tokens);
  ownFlags.resize(static_cast<size_t>(most(manifest, ownTokens)));
  taken.resize(static_cast<size_t>(
      most(manifest, [](const ProgramInfo &of) { return of.ops.size(); })));
  indices.reserve(tokens);
  callRows.reserve(tokens);
  const auto count = static_cast<size_t>(wanted.options.sequences);
  nextPositions.resize(count);
  stopPositions.resize(count);
  failures.reserve(count);

  if (const std::optional<int> node = pool->node()) {
    arena.preferNode(*node);
    result.preferNode(*node);
    sequenceState.preferNode(*node);
  }
  context.images = this->images.data();
  // A tile of a product stores to tokens that lie far apart.
  arena.useHugePages();
  context.arena = arena.data();
  context.caches = sequenceState.caches();
  context.tokenIds = ids.data();
  context.sequences = sequences.data();
  context.positions = positions.data();
  context.ropePositions = ropePositions.data();
  context.windows = windows.data();
  context.pageTables = sequenceState.pageTables();
  context.counts[kTokensOfCall] = {0, nullptr, flags.data()};
  context.counts[kWantedTokens] = {0, wantedTokens.data(), flags.data()};
  context.counts[kHiddenTokens] = {0, hiddenTokens.data(), flags.data()};
  context.result = reinterpret_cast<float *>(result.data());
  context.hidden = context.result + logitValues(manifest);
  context.pageTableStride = sequenceState.pageTableStride();
  context.taken = taken.data();
  pool->bind(context);
}

std::unique_ptr<Engine> Engine::beside(const EngineOptions &options) const {
  // The sizes of the images have been checked.
  std::vector<WeightImage> all = {{images.front(), size_t{0}}};
  for (size_t i = 0; i < model.images.size(); ++i)
    all.emplace_back(images[i + 1], model.images[i].bytes);
  return std::unique_ptr<Engine>(new Engine(model, all, 0, entries, pool,
                                            *std::make_shared<MemoryBudget>(),
                                            WantedState(model, options)));
}

std::string Engine::whyNoSteps() const {
  const int64_t bytes = stepBackBytesOf(model.caches);
  if (bytes == 0 || sequenceState.maxStepping() > 0)
    return {};
  return "the states that a sequence steps back to take " +
         std::to_string(bytes) + " bytes, and " +
         std::to_string(kStepsDivisor) +
         " times as many must be free beside the KV cache of one text when " +
         allowed + "; allow more memory, or choose --speculate off";
}

uint64_t Engine::finishCheck(const std::function<bool()> &enough) {
  return checker ? checker->finish(enough) : 0;
}

void Engine::trace(Tracer *to) {
  pool->bind(context);
  context.trace = nullptr;
  tracer = to;
  if (tracer)
    tracer->bind(context);
}

void Engine::check(std::span<const Token> batch) {
  if (std::ranges::any_of(batch, [](const Token &token) {
        return token.wanted && token.row == RowKind::Logits;
      }))
    model.model.output.requireRows(model.model.name);
  for (const Token &token : batch) {
    const int64_t length = sequenceState.length(token.sequence);
    if (!sequenceState.canRun(token.sequence, 0, length))
      throw Error("position " + std::to_string(length) + " of sequence " +
                  std::to_string(token.sequence) +
                  " has run in another program with the same state: the "
                  "sequence must lose it before");
    nextPositions[static_cast<size_t>(token.sequence)] = length;
    stopPositions[static_cast<size_t>(token.sequence)] = kNoStop;
  }
  for (const Token &token : batch) {
    checkInputs(token);
    int64_t &next = nextPositions[static_cast<size_t>(token.sequence)];
    if (token.position != next)
      throw Error("position " + std::to_string(token.position) +
                  " of sequence " + std::to_string(token.sequence) +
                  " does not follow: " + std::to_string(next) + " is next");
    ++next;
  }
}

void Engine::stop(const Token &token, ErrorKind kind, uint32_t op) {
  // A token before the one that had no page may have another failure.
  if (std::exchange(stopPositions[static_cast<size_t>(token.sequence)],
                    token.position) != kNoStop)
    std::erase_if(failures, [&](const Failure &failure) {
      return failure.sequence == token.sequence;
    });
  failures.push_back({token.sequence, kind, token.id, token.position, op});
}

void Engine::beginCall() {
  for (CountOfCall &count : context.counts)
    count.number = 0;
  wantedTokens.clear();
  hiddenTokens.clear();
}

size_t Engine::fillCall(std::span<const Token> batch, size_t next) {
  beginCall();
  indices.clear();
  for (; next < batch.size() && context.tokens() < callTokens; ++next) {
    const Token &token = batch[next];
    if (isStopped(token))
      continue;
    if (token.wanted &&
        std::ssize(rowsOf(token)) == model.forward().limits.rows)
      break;
    if (!model.model.hasToken(token.id)) {
      stop(token, ErrorKind::InvalidToken);
      continue;
    }
    if (const auto kind =
            sequenceState.extend(token.sequence, token.position + 1)) {
      stop(token, *kind);
      continue;
    }
    indices.push_back(next);
    fillToken(token, context.tokens());
    addToken(token);
  }
  return next;
}

void Engine::addToken(const Token &token) {
  const auto i = static_cast<size_t>(context.counts[kTokensOfCall].number++);
  ids[i] = token.id;
  sequences[i] = token.sequence;
  positions[i] = static_cast<int32_t>(token.position);
  const RopePosition rope = token.rope.value_or(
      RopePosition{positions[i], positions[i], positions[i]});
  std::ranges::copy(std::array{rope.time, rope.height, rope.width},
                    &ropePositions[3 * i]);
  windows[i] = token.window;
  flags[i] = kNoFlag;
  if (token.wanted)
    rowsOf(token).push_back(static_cast<int32_t>(i));
}

void Engine::runEntry(size_t program) {
  context.counts[kWantedTokens].number = std::ssize(wantedTokens);
  context.counts[kHiddenTokens].number = std::ssize(hiddenTokens);
  std::ranges::fill(taken, 0);
  pool->run(entries[program], context);
  if (tracer)
    tracer->addCall(taken);
}

void Engine::callForward(std::span<const Token> batch) {
  try {
    runEntry(0);
  } catch (...) {
    takeBackCall();
    throw;
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    const Token &token = batch[indices[i]];
    if (flags[i] == kNoFlag || isStopped(token))
      continue;
    stop(token, ErrorKind::NotFinite, flags[i]);
    takeBack(token.sequence, token.position);
  }
}

void Engine::takeBack(SequenceId sequence, int64_t position) {
  sequenceState.truncate(sequence, sequenceState.reachable(sequence, position));
}

void Engine::takeBackCall() {
  for (size_t i = 0; i < static_cast<size_t>(context.tokens()); ++i)
    takeBack(sequences[i], positions[i]);
}

void Engine::giveRows(std::span<const Token> batch, const RowsFn &receive) {
  const ProgramValue *output = model.forward().logits();
  float *logits = context.result, *hidden = context.hidden;
  callRows.clear();
  for (size_t index : indices) {
    const Token &token = batch[index];
    if (!token.wanted)
      continue;
    std::span<float> row;
    if (token.row == RowKind::Hidden) {
      row = {hidden, static_cast<size_t>(model.model.hiddenSize)};
      hidden += model.model.hiddenSize;
    } else {
      row = {logits, static_cast<size_t>(model.model.outputWidth())};
      logits += output->stride;
    }
    if (!isStopped(token))
      callRows.push_back({index, row});
  }
  receive(callRows);
}

std::span<const Failure> Engine::run(std::span<const Token> batch,
                                     const RowsFn &receive,
                                     const ProgressFn &progress) {
  if (checker)
    checker->throwIfDamaged();
  check(batch);
  failures.clear();
  for (size_t next = 0; next < batch.size();) {
    if (next && progress && !progress(next)) {
      for (const Token &token : batch.subspan(next))
        if (!isStopped(token))
          stop(token, ErrorKind::Cancelled);
      break;
    }
    next = fillCall(batch, next);
    if (context.tokens() == 0)
      break;
    callForward(batch);
    giveRows(batch, receive);
  }
  return failures;
}

std::span<const Failure> Engine::run(std::span<const Token> batch,
                                     const RowFn &receive,
                                     const ProgressFn &progress) {
  const auto receiveEach = [&](std::span<const Row> rows) {
    for (const Row &row : rows)
      receive(row.index, row.values);
  };
  return run(batch, RowsFn(receiveEach), progress);
}

void Engine::forward(std::span<const Token> batch, const RowFn &receive) {
  const std::span<const Failure> stops = run(batch, receive);
  if (!stops.empty())
    throw Error(describe(stops.front()), stops.front().kind);
}
