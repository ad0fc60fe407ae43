//===- Engine.cpp - Runs ragged batches through a model -------------------===//

#include "engine/Engine.h"

#include "engine/CpuCount.h"

#include "qwen/ABI/ControlGroups.h"
#include "qwen/ABI/Error.h"

#include <algorithm>
#include <optional>

using namespace qwen;

/// Bytes of Engine::result.
static size_t resultBytes(const Manifest &manifest) {
  return static_cast<size_t>(
             manifest.limits.rows *
             std::max(manifest.resultStride, manifest.model.hiddenSize)) *
         sizeof(float);
}

/// Memory of a running model besides arena, result and KV cache: 4 MiB with the
/// shape of Qwen2.5-0.5B, and a reserve. The mapped file does not count,
/// because the system can take its memory pages back.
static constexpr uint64_t kProcessBytes = uint64_t{16} << 20;

/// Makes the cache that the options ask for, or a smaller one if a control
/// group limits memory: a full cache is an Error, but a full control group
/// kills the process. Throws Error if there is no memory for one page.
static KvCache makeCache(const Manifest &manifest,
                         const EngineOptions &options) {
  int64_t pages = options.kvPages;
  if (!pages)
    pages = std::max(1, options.sequences) *
            ceilDiv(manifest.model.context, kPageTokens);
  std::string whyNotMore;
  if (const auto limit = controlGroupMemory()) {
    const std::string allows = "its control group allows " +
                               std::to_string(*limit) + " bytes of memory";
    const auto page = static_cast<uint64_t>(manifest.kv.pageBytes);
    const uint64_t fixed = static_cast<uint64_t>(manifest.arenaBytes) +
                           resultBytes(manifest) + kProcessBytes;
    if (*limit < fixed + page)
      throw Error(manifest.model.name + " needs " +
                  std::to_string(fixed + page) + " bytes to run when " +
                  allows);
    const auto affordable = static_cast<int64_t>((*limit - fixed) / page);
    if (affordable < pages) {
      pages = affordable;
      whyNotMore = " (" + allows + ")";
    }
  }
  return {pages, manifest.kv.pageBytes, options.sequences,
          manifest.model.context, whyNotMore};
}

static int64_t tokensPerCall(const Manifest &manifest,
                             const EngineOptions &options) {
  if (options.callTokens < 0)
    throw Error("the tokens of a call are " +
                std::to_string(options.callTokens) +
                " when at least 1 is needed");
  if (options.callTokens == 0)
    return manifest.limits.tokens;
  return std::min(options.callTokens, manifest.limits.tokens);
}

ForwardFn *qwen::findForward(const Artifact &artifact, const ElfMapping &code) {
  const TargetInfo &target = artifact.selectTarget(hostArch(), hostFeatures());
  const std::string name = "forward." + target.name;
  ForwardFn *entry = code.function<ForwardFn>(name);
  if (!entry)
    throw Error(artifact.path() + " is damaged: it has no function " + name);
  return entry;
}

Engine::Engine(const Artifact &artifact, const EngineOptions &options)
    : Engine(artifact.manifest(), artifact.weights(), nullptr, options) {
  // Before the code is checked: an error about the target says more than one
  // about a checksum.
  artifact.selectTarget(hostArch(), hostFeatures());
  code = std::make_unique<const ElfMapping>(artifact.loadCode());
  if (options.lock)
    artifact.lock();
  else
    artifact.readAhead();
  entry = findForward(artifact, *code);
  if (options.check == WeightCheck::Now)
    artifact.checkWeights();
  else if (options.check == WeightCheck::Background)
    checker.emplace(artifact);
}

Engine::Engine(const Manifest &manifest, const uint8_t *weights,
               ForwardFn *forward, const EngineOptions &options)
    : model(manifest), entry(forward),
      pool(options.threads ? options.threads : defaultThreads()),
      kv(makeCache(manifest, options)),
      callTokens(tokensPerCall(manifest, options)),
      arena(Mapping::memory(static_cast<size_t>(manifest.arenaBytes),
                            "the arena")),
      result(Mapping::memory(resultBytes(manifest), "the result")) {
  const auto tokens = static_cast<size_t>(callTokens);
  for (std::vector<int32_t> *list : {&ids, &sequences, &positions})
    list->resize(tokens);
  wantedRows.resize(static_cast<size_t>(manifest.limits.rows));
  flags.resize(tokens);
  taken.resize(manifest.ops.size());
  nextPositions.resize(static_cast<size_t>(options.sequences));

  context.weights = weights;
  context.arena = arena.data();
  context.kvPool = kv.pool();
  context.tokenIds = ids.data();
  context.sequences = sequences.data();
  context.positions = positions.data();
  context.pageTables = kv.pageTables();
  context.wantedRows = wantedRows.data();
  context.flags = flags.data();
  context.result = reinterpret_cast<float *>(result.data());
  context.pageTableStride = kv.pageTableStride();
  context.taken = taken.data();
  pool.bind(context);
}

uint64_t Engine::finishCheck(const std::function<bool()> &enough) {
  return checker ? checker->finish(enough) : 0;
}

void Engine::trace(Tracer *tracer) {
  pool.bind(context);
  context.trace = nullptr;
  if (tracer)
    tracer->bind(context);
}

static std::string where(const Token &token) {
  return "sequence " + std::to_string(token.sequence);
}

void Engine::check(std::span<const Token> batch) {
  for (const Token &token : batch) {
    const int64_t length = kv.length(token.sequence);
    nextPositions[static_cast<size_t>(token.sequence)] = length;
  }
  for (const Token &token : batch) {
    if (token.id < 0 || token.id >= model.model.vocabSize)
      throw Error("token id " + std::to_string(token.id) + " of " +
                  where(token) + " is not in the model's vocabulary of " +
                  std::to_string(model.model.vocabSize));
    int64_t &next = nextPositions[static_cast<size_t>(token.sequence)];
    if (token.position != next)
      throw Error("position " + std::to_string(token.position) + " of " +
                  where(token) + " does not follow: " + std::to_string(next) +
                  " is next");
    if (token.position >= model.model.context)
      throw Error("position " + std::to_string(token.position) + " of " +
                  where(token) + " is past the context of " +
                  std::to_string(model.model.context) +
                  " that the model was compiled for");
    ++next;
  }
}

size_t Engine::callSize(std::span<const Token> rest) const {
  const size_t most = std::min(rest.size(), static_cast<size_t>(callTokens));
  int64_t wanted = 0;
  for (size_t i = 0; i < most; ++i)
    if (rest[i].wanted && ++wanted > model.limits.rows)
      return i;
  return most;
}

void Engine::forward(std::span<const Token> batch, const RowFn &receive,
                     RowKind kind) {
  if (checker)
    checker->throwIfDamaged();
  check(batch);
  const bool hidden = kind == RowKind::Hidden;
  const auto width = static_cast<size_t>(hidden ? model.model.hiddenSize
                                                : model.model.vocabSize);
  const auto stride =
      static_cast<size_t>(hidden ? model.model.hiddenSize : model.resultStride);
  for (size_t done = 0; done < batch.size();) {
    const std::span<const Token> part =
        batch.subspan(done, callSize(batch.subspan(done)));
    call(part, kind);
    float *row = context.result;
    for (size_t i = 0; i < part.size(); ++i)
      if (part[i].wanted) {
        receive(done + i, {row, width});
        row += stride;
      }
    done += part.size();
  }
}

void Engine::call(std::span<const Token> part, RowKind kind) {
  const auto undo = [&] {
    for (size_t i = part.size(); i-- > 0;)
      if (kv.length(part[i].sequence) > part[i].position)
        kv.truncate(part[i].sequence, part[i].position);
  };
  try {
    context.rows = 0;
    for (size_t i = 0; i < part.size(); ++i) {
      kv.extend(part[i].sequence, part[i].position + 1);
      ids[i] = part[i].id;
      sequences[i] = part[i].sequence;
      positions[i] = static_cast<int32_t>(part[i].position);
      flags[i] = kNoFlag;
      if (part[i].wanted)
        wantedRows[static_cast<size_t>(context.rows++)] =
            static_cast<int32_t>(i);
    }
    context.tokens = static_cast<int64_t>(part.size());
    context.wantHidden = kind == RowKind::Hidden;
    std::ranges::fill(taken, 0);
    pool.run(entry, context);
    checkFlags(part);
  } catch (...) {
    undo();
    throw;
  }
}

void Engine::checkFlags(std::span<const Token> part) const {
  for (size_t i = 0; i < part.size(); ++i) {
    if (flags[i] == kNoFlag)
      continue;
    const std::string op = flags[i] < model.ops.size()
                               ? model.ops[flags[i]]
                               : "op " + std::to_string(flags[i]);
    std::string message = "a number is not finite at sequence " +
                          std::to_string(part[i].sequence) + ", position " +
                          std::to_string(part[i].position) + ", in " + op;
    message += "; the file may be damaged, which qwen-run info --check finds";
    if (model.kv.format == KvFormat::F16 && flags[i] < model.work.size() &&
        model.work[flags[i]].kind == "append")
      message += ", or keys or values are too large for f16, which qwen-opt "
                 "--kv f32 avoids";
    throw Error(message);
  }
}
