//===- CApi.cpp - C interface of the runtime ------------------------------===//

#include "CApiModel.h"
#include "CApiStruct.h"
#include "engine/CpuCount.h"
#include "engine/Logprobs.h"
#include "model/ChatFormat.h"
#include "model/SamplerTexts.h"

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <mutex>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::capi;

struct qwen_sampler {
  Sampler sampler;
  size_t vocab;
};

static_assert(static_cast<int>(WeightCheck::Background) ==
                  QWEN_CHECK_BACKGROUND &&
              static_cast<int>(WeightCheck::Now) == QWEN_CHECK_NOW &&
              static_cast<int>(WeightCheck::Off) == QWEN_CHECK_OFF);
static_assert(static_cast<int>(Speculate::Off) == QWEN_SPECULATE_OFF &&
              static_cast<int>(Speculate::Auto) == QWEN_SPECULATE_AUTO &&
              static_cast<int>(Speculate::Lookup) == QWEN_SPECULATE_LOOKUP &&
              static_cast<int>(Speculate::Mtp) == QWEN_SPECULATE_MTP &&
              kSpeculates == 4);
static_assert(
    -static_cast<int>(ErrorKind::General) == QWEN_ERROR_GENERAL &&
    -static_cast<int>(ErrorKind::NotFinite) == QWEN_ERROR_NOT_FINITE &&
    -static_cast<int>(ErrorKind::NoPage) == QWEN_ERROR_NO_PAGE &&
    -static_cast<int>(ErrorKind::PastContext) == QWEN_ERROR_PAST_CONTEXT &&
    -static_cast<int>(ErrorKind::InvalidToken) == QWEN_ERROR_INVALID_TOKEN &&
    -static_cast<int>(ErrorKind::NoSequence) == QWEN_ERROR_NO_SEQUENCE &&
    -static_cast<int>(ErrorKind::NoMemory) == QWEN_ERROR_NO_MEMORY &&
    -static_cast<int>(ErrorKind::QueueFull) == QWEN_ERROR_QUEUE_FULL &&
    -static_cast<int>(ErrorKind::Cancelled) == QWEN_ERROR_CANCELLED &&
    -static_cast<int>(ErrorKind::NoSnapshot) == QWEN_ERROR_NO_SNAPSHOT);

static thread_local std::string lastError;

ErrorKind qwen::capi::noteError() {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    lastError = "out of memory";
    return ErrorKind::NoMemory;
  } catch (const Error &error) {
    lastError = error.what();
    return error.kind();
  } catch (const std::exception &error) {
    lastError = error.what();
    return ErrorKind::General;
  }
}

void qwen::capi::needArgument(const std::string &name, const void *argument) {
  if (!argument)
    throw Error(name + " is NULL");
}

/// An option of qwen_load: 0 stands for `usual`. Where 0 has a meaning of its
/// own, a negative number stands for it. Throws Error outside [least, most].
template <typename T>
static T engineOption(const char *name, int64_t value, T usual, int64_t least,
                      int64_t most) {
  if (value == 0)
    return usual;
  if (value < 0 && least == 0 && usual != T())
    return T();
  if (value < least || value > most)
    throw Error(std::string("qwen_load: ") + name + " is " +
                std::to_string(value) + " when 0 (the default) to " +
                std::to_string(most) + " is needed");
  return static_cast<T>(value);
}

/// Every row of EngineOptions.def has its member.
static EngineOptions engineOptionsOf(const qwen_options &from) {
  EngineOptions to;
#define QWEN_ENGINE_OPTION(Part, Type, Field, Name, Short, Default, Unit,      \
                           Least, Most, Help)                                  \
  to.Field = engineOption(#Name, from.Name, to.Field, Least, Most);
#include "engine/EngineOptions.def"
  return to;
}

void qwen::capi::checkSize(const std::string &what, uint32_t size) {
  // A number that was never set must not be taken for a size.
  constexpr uint32_t kMost = 4096;
  if (size == 0 || size > kMost || size % sizeof(size) != 0)
    throw Error(what + ": size is " + std::to_string(size) +
                " when that of the struct is needed");
}

void qwen::capi::checkTail(const std::string &what, const void *from,
                           uint32_t size, size_t known) {
  if (size == 0)
    return;
  checkSize(what, size);
  const auto *bytes = static_cast<const uint8_t *>(from);
  for (size_t i = known; i < size; ++i)
    if (bytes[i])
      throw Error(what + ": byte " + std::to_string(i) +
                  " is set when this library knows the first " +
                  std::to_string(known) + " of " + std::to_string(size) +
                  "; leave the member out, or use a newer library");
}

static qwen_sampling samplingOf(const qwen_model &model) {
  const SamplerOptions options = samplerOptions(model.manifest().generation);
  qwen_sampling sampling = {};
  sampling.size = sizeof(sampling);
#define QWEN_SAMPLING(Type, Field, Name, ...) sampling.Name = options.Field;
#include "qwen/ABI/SamplerOptions.def"
  return sampling;
}

/// Sets what `from` has as texts.
static void addTexts(const std::string &what, const qwen_model &model,
                     const qwen_sampling &from, SamplerOptions &to) {
  const auto read = [&](const char *name, const char *const *texts,
                        size_t count) {
    std::vector<std::string> result;
    const std::string argument = what + ": " + name;
    if (count)
      needArgument(argument, static_cast<const void *>(texts));
    for (const char *text : std::span(texts, count)) {
      needArgument(argument + "[" + std::to_string(result.size()) + "]", text);
      result.emplace_back(text);
    }
    return result;
  };
  to.texts.badWords = read("bad_words", from.bad_words, from.bad_word_count);
  if (from.dry_sequence_breakers || from.dry_sequence_breaker_count)
    to.texts.dryBreakers =
        read("dry_sequence_breakers", from.dry_sequence_breakers,
             from.dry_sequence_breaker_count);
  if (from.samplers || from.sampler_count)
    to.samplers =
        parseSamplers(read("samplers", from.samplers, from.sampler_count));
  if (hasTexts(to))
    resolveTexts(model.tokenizer(), to);
}

SamplerOptions qwen::capi::samplerOptionsOf(const std::string &what,
                                            const qwen_model &model,
                                            const qwen_sampling *from) {
  qwen_sampling sampling = samplingOf(model);
  if (from)
    sampling = readStruct(what, *from, sampling);
  if (sampling.logit_bias_count)
    needArgument(what + ": logit_bias", sampling.logit_bias);
  SamplerOptions options;
#define QWEN_SAMPLING(Type, Field, Name, ...) options.Field = sampling.Name;
#include "qwen/ABI/SamplerOptions.def"
  for (const qwen_bias &each :
       std::span(sampling.logit_bias, sampling.logit_bias_count))
    options.logitBias.push_back({each.id, each.bias});
  options.seed = sampling.seed;
  addTexts(what, model, sampling, options);
  return options;
}

namespace {
/// The threads and the memory that the models of a process share.
struct ProcessShares {
  /// A child of fork has none of its parent's.
  pid_t process;
  std::weak_ptr<ThreadPool> pool = {};
  std::weak_ptr<MemoryBudget> budget = {};

  std::shared_ptr<ThreadPool> poolOf(int32_t threads);
  std::shared_ptr<MemoryBudget> budgetFor(const EngineOptions &options);
};
} // namespace

/// The number of threads that an option starts.
static int32_t startedThreads(int32_t wanted) {
  const int32_t threads = usableThreads(wanted);
  return threads ? threads : defaultThreads();
}

std::shared_ptr<ThreadPool> ProcessShares::poolOf(int32_t threads) {
  std::shared_ptr<ThreadPool> live = pool.lock();
  if (!live || live->size() != threads)
    pool = live = std::make_shared<ThreadPool>(threads);
  return live;
}

std::shared_ptr<MemoryBudget>
ProcessShares::budgetFor(const EngineOptions &options) {
  std::shared_ptr<MemoryBudget> live = budget.lock();
  if (!live)
    budget = live = std::make_shared<MemoryBudget>();
  if (options.maxMemory)
    live->limitTo(static_cast<uint64_t>(options.maxMemory), "max_memory");
  return live;
}

/// The live shares of this process, with the memory that `options` ask for and,
/// unless the model has its own, the threads.
static std::pair<std::shared_ptr<ThreadPool>, std::shared_ptr<MemoryBudget>>
sharesOf(const EngineOptions &options, const qwen_threads *own) {
  static std::mutex mutex;
  static ProcessShares shares;
  const std::lock_guard lock(mutex);
  if (shares.process != getpid())
    shares = {.process = getpid()};
  auto pool = own ? own->pool : shares.poolOf(startedThreads(options.threads));
  return {std::move(pool), shares.budgetFor(options)};
}

qwen_model::qwen_model(const char *path, const EngineOptions &given,
                       const qwen_threads *threads, const char *chatTemplate,
                       const char *draftModel)
    : Model(path, chatTemplate ? chatTemplate : "") {
  // That of the checkpoint is read when it is needed.
  if (chatTemplate && *chatTemplate)
    (void)chatFormat();
  EngineOptions options = given;
  options.check = usableCheck(options.check, artifact().fileSize());
  auto [pool, budget] = sharesOf(options, threads);
  running = makeEngine(*this, std::move(pool), budget, options,
                       draftModel ? draftModel : "");
}

const char *qwen_last_error(void) { return lastError.c_str(); }

const char *qwen_version(void) { return projectVersion(); }

qwen_threads *qwen_threads_new(int32_t threads) {
  return guard<qwen_threads *>([&] {
    if (threads < 0 || threads > ThreadPool::kMaxThreads)
      throw Error("qwen_threads_new: threads is " + std::to_string(threads) +
                  " when 0 (the default) to " +
                  std::to_string(ThreadPool::kMaxThreads) + " is needed");
    return new qwen_threads{
        std::make_shared<ThreadPool>(startedThreads(threads))};
  });
}

void qwen_threads_free(qwen_threads *threads) { delete threads; }

qwen_model *qwen_load(const char *path, const qwen_options *options) {
  return guard<qwen_model *>([&] {
    needArgument("qwen_load: path", path);
    qwen_options from = {};
    if (options)
      from = readStruct("qwen_load: options", *options);
    if (from.pool && from.threads)
      throw Error("qwen_load: pool and threads are both set");
    return new qwen_model(path, engineOptionsOf(from), from.pool,
                          from.chat_template, from.draft_model);
  });
}

void qwen_free(qwen_model *model) { delete model; }

int32_t qwen_finish_check(qwen_model *model) {
  return with<int32_t>(__func__, model, [&] {
    model->engine().finishCheck();
    return 0;
  });
}

int32_t qwen_vocab_size(const qwen_model *model) {
  return with<int32_t>(__func__, model, [&] {
    return static_cast<int32_t>(model->manifest().model.vocabSize);
  });
}

int64_t qwen_context_size(const qwen_model *model) {
  return with<int64_t>(__func__, model,
                       [&] { return model->manifest().model.context; });
}

int64_t qwen_model_info(const qwen_model *model, char *json, size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    need("json", json, capacity);
    return copyOut(model->artifact().manifestText(), json, capacity);
  });
}

int32_t qwen_token_id(const qwen_model *model, const char *name) {
  return with<int32_t>(__func__, model, [&](Need need) {
    need("name", name);
    if (const std::optional<int32_t> id =
            model->tokenizer().findAddedToken(name))
      return *id;
    throw Error("qwen_token_id: " + model->artifact().path() +
                " has no added token " + quote(name));
  });
}

int32_t qwen_is_end(const qwen_model *model, int32_t id) {
  return with<int32_t>(__func__, model, [&] {
    const std::vector<int32_t> &ends = model->manifest().generation.eosTokenIds;
    return std::ranges::find(ends, id) != ends.end();
  });
}

int64_t qwen_end_tokens(const qwen_model *model, int32_t chat, int32_t *ids,
                        size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    need("ids", ids, capacity);
    std::vector<int32_t> ends = model->manifest().generation.eosTokenIds;
    if (chat)
      ends = model->chatFormat().endTokens(std::move(ends));
    return copyOut(ends, ids, capacity);
  });
}

void qwen::capi::checkFlags(const char *function, int32_t flags,
                            int32_t known) {
  if (flags & ~known)
    throw Error(std::string(function) + ": flags are " + std::to_string(flags) +
                " when a sum of " +
                (known == QWEN_ALLOW_SPECIAL ? "0 and 1" : "0, 1 and 2") +
                " is needed");
}

int64_t qwen_tokenize(const qwen_model *model, const char *text, size_t size,
                      int32_t flags, int32_t *ids, size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    need("text", text, size);
    need("ids", ids, capacity);
    checkFlags(need.function, flags, QWEN_ALLOW_SPECIAL);
    return copyOut(model->tokenizer().encode({text, size}, flags != 0), ids,
                   capacity);
  });
}

int64_t qwen_detokenize(const qwen_model *model, const int32_t *ids,
                        size_t count, char *text, size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    need("ids", ids, count);
    need("text", text, capacity);
    return copyOut(model->tokenizer().decode({ids, count}), text, capacity);
  });
}

/// Calls open(state), which gives a new sequence. It keeps states to step back
/// to while there are any.
template <typename Open>
static int32_t openWithStates(const char *function, qwen_model *model,
                              const Open &open) {
  return with<int32_t>(function, model, [&] {
    SequenceState &state = model->engine().state();
    const SequenceId sequence = open(state);
    state.reserveStates(sequence);
    return sequence;
  });
}

int32_t qwen_open_sequence(qwen_model *model) {
  return openWithStates(__func__, model,
                        [](SequenceState &state) { return state.open(); });
}

int32_t qwen_branch_sequence(qwen_model *model, int32_t sequence,
                             int64_t length) {
  return openWithStates(__func__, model, [&](SequenceState &state) {
    return state.branch(sequence, length);
  });
}

int32_t qwen_close_sequence(qwen_model *model, int32_t sequence) {
  return with<int32_t>(__func__, model, [&] {
    model->engine().state().close(sequence);
    return 0;
  });
}

int32_t qwen_truncate_sequence(qwen_model *model, int32_t sequence,
                               int64_t length) {
  return with<int32_t>(__func__, model, [&] {
    model->engine().state().truncate(sequence, length);
    return 0;
  });
}

/// Number of floats that a token has in the rows of qwen_forward.
static int64_t rowSize(const ModelInfo &info, const Token &token) {
  if (!token.wanted)
    return 0;
  return token.row == RowKind::Hidden ? info.hiddenSize : info.vocabSize;
}

static Token tokenOf(const qwen_token &from, const ModelInfo &info) {
  if (from.want < QWEN_WANT_NOTHING || from.want > QWEN_WANT_HIDDEN)
    throw Error("qwen_forward: want is " + std::to_string(from.want) +
                " when 0 to 2 is needed");
  if (from.want == QWEN_WANT_LOGITS)
    info.output.requireLogits(info.name);
  return {from.id, from.sequence, from.position, from.want != QWEN_WANT_NOTHING,
          from.want == QWEN_WANT_HIDDEN ? RowKind::Hidden : RowKind::Logits};
}

int32_t qwen_forward(qwen_model *model, const qwen_token *tokens, size_t count,
                     float *rows) {
  return with<int32_t>(__func__, model, [&](Need need) {
    need("tokens", tokens, count);
    const ModelInfo &info = model->manifest().model;
    model->batch.clear();
    model->failures = {};
    for (const qwen_token &token : std::span(tokens, count)) {
      if (token.want)
        need("rows", rows);
      model->batch.push_back(tokenOf(token, info));
    }
    // A token that does not run leaves its row as it is.
    size_t seen = 0;
    model->failures = model->engine().run(
        model->batch,
        [&](size_t index, std::span<float> row) {
          for (; seen < index; ++seen)
            rows += rowSize(info, model->batch[seen]);
          std::ranges::copy(row, rows);
        },
        model->progress);
    if (model->failures.empty())
      return 0;
    const Failure &first = model->failures.front();
    throw Error(model->engine().describe(first), first.kind);
  });
}

int32_t qwen_set_progress(qwen_model *model,
                          int32_t (*progress)(void *user, size_t done),
                          void *user) {
  return with<int32_t>(__func__, model, [&] {
    model->progress = {};
    if (progress)
      model->progress = [=](size_t done) { return progress(user, done) != 0; };
    return 0;
  });
}

int64_t qwen_failures(const qwen_model *model, qwen_failure *failures,
                      size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    need("failures", failures, capacity);
    const std::span<const Failure> all = model->failures;
    for (size_t i = 0; i < std::min(all.size(), capacity); ++i)
      failures[i] = {all[i].sequence, -static_cast<int32_t>(all[i].kind),
                     all[i].position};
    return static_cast<int64_t>(all.size());
  });
}

int64_t qwen_describe_failure(const qwen_model *model, size_t index, char *text,
                              size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    need("text", text, capacity);
    if (index >= model->failures.size())
      throw Error("qwen_describe_failure: index is " + std::to_string(index) +
                  " when " + std::to_string(model->failures.size()) +
                  " sequences failed");
    return copyOut(model->engine().describe(model->failures[index]), text,
                   capacity);
  });
}

int64_t qwen_pages(const qwen_model *model) {
  return with<int64_t>(__func__, model,
                       [&] { return model->engine().state().pages(); });
}

int64_t qwen_free_pages(const qwen_model *model) {
  return with<int64_t>(__func__, model,
                       [&] { return model->engine().state().freePages(); });
}

int32_t qwen_default_sampling(const qwen_model *model,
                              qwen_sampling *sampling) {
  return with<int32_t>(__func__, model, [&](Need need) {
    need("sampling", sampling);
    writeStruct("qwen_default_sampling: sampling", samplingOf(*model),
                sampling);
    return 0;
  });
}

qwen_sampler *qwen_sampler_new(const qwen_model *model,
                               const qwen_sampling *sampling, uint64_t answer) {
  return with<qwen_sampler *>(__func__, model, [&] {
    const SamplerOptions options =
        samplerOptionsOf("qwen_sampler_new: sampling", *model, sampling);
    const Manifest &manifest = model->manifest();
    const ModelInfo &info = manifest.model;
    return new qwen_sampler{Sampler(options, info.vocabSize,
                                    info.tokenizerVocab, answer,
                                    manifest.generation.eosTokenIds),
                            static_cast<size_t>(info.vocabSize)};
  });
}

qwen_sampler *qwen_sampler_copy(const qwen_sampler *sampler) {
  return with<qwen_sampler *>(__func__, sampler,
                              [&] { return new qwen_sampler(*sampler); });
}

/// Writes the logs of the probabilities of ids.
template <typename NumberType>
static void writeLogprobs(const qwen_model &model, const float *logits,
                          std::span<const int32_t> ids, NumberType *to) {
  const ModelInfo &info = model.info();
  const double sum = logSumExp({logits, static_cast<size_t>(info.vocabSize)});
  for (const int32_t id : ids) {
    info.requireToken(id);
    *to++ = static_cast<NumberType>(logits[id] - sum);
  }
}

int32_t qwen_logprobs(const qwen_model *model, const float *logits,
                      const int32_t *ids, size_t count, float *logprobs) {
  return with<int32_t>(__func__, model, [&](Need need) {
    need("logits", logits);
    need("ids", ids, count);
    need("logprobs", logprobs, count);
    writeLogprobs(*model, logits, {ids, count}, logprobs);
    return 0;
  });
}

int32_t qwen_double_logprobs(const qwen_model *model, const float *logits,
                             const int32_t *ids, size_t count,
                             double *logprobs) {
  return with<int32_t>(__func__, model, [&](Need need) {
    need("logits", logits);
    need("ids", ids, count);
    need("logprobs", logprobs, count);
    writeLogprobs(*model, logits, {ids, count}, logprobs);
    return 0;
  });
}

int64_t qwen_top_tokens(const qwen_model *model, const float *logits,
                        int32_t *ids, size_t capacity) {
  return with<int64_t>(__func__, model, [&](Need need) {
    need("logits", logits);
    need("ids", ids, capacity);
    std::vector<int32_t> top;
    topTokens({logits, static_cast<size_t>(qwen_vocab_size(model))}, capacity,
              top);
    std::ranges::copy(top, ids);
    return std::ssize(top);
  });
}

void qwen_sampler_free(qwen_sampler *sampler) { delete sampler; }

int32_t qwen_sampler_accept(qwen_sampler *sampler, int32_t id) {
  return with<int32_t>(__func__, sampler, [&] {
    sampler->sampler.acceptPrompt(id);
    return 0;
  });
}

int32_t qwen_sample(qwen_sampler *sampler, const float *logits,
                    int64_t position) {
  return with<int32_t>(__func__, sampler, [&](Need need) {
    need("logits", logits);
    const int32_t id = sampler->sampler.sample({logits, sampler->vocab},
                                               static_cast<uint64_t>(position));
    sampler->sampler.acceptDrawn(id);
    return id;
  });
}
