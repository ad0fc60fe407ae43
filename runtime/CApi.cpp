//===- CApi.cpp - C interface of the runtime ------------------------------===//

#include "CApiModel.h"
#include "engine/CpuCount.h"
#include "engine/Logprobs.h"
#include "model/ChatFormat.h"

#include "qwen/Support/JsonValue.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"

#include <nlohmann/json.hpp>

#include <algorithm>

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

void qwen::capi::needArgument(const char *name, const void *argument) {
  if (!argument)
    throw Error(std::string(name) + " is NULL");
}

/// Writes at most `capacity` elements of `all`, and returns the number of all.
template <typename AllType, typename ElementType>
static int64_t copyOut(const AllType &all, ElementType *to, size_t capacity) {
  std::copy_n(all.begin(), std::min(all.size(), capacity), to);
  return std::ssize(all);
}

/// Throws Error if an option of qwen_load is not in [0, most].
static void checkOption(const char *name, int32_t value, int32_t most) {
  if (value < 0 || value > most)
    throw Error(std::string("qwen_load: ") + name + " is " +
                std::to_string(value) + " when 0 (the default) to " +
                std::to_string(most) + " is needed");
}

void qwen::capi::checkSize(const std::string &what, size_t size, size_t needed,
                           const char *orElse) {
  if (size != needed)
    throw Error(what + " is " + std::to_string(size) + " when " + orElse +
                std::to_string(needed) +
                " is needed; compile the program with the library's header");
}

SamplerOptions qwen::capi::samplerOptionsOf(const char *function,
                                            const qwen_model &model,
                                            const qwen_sampling &sampling) {
  if (!hasValues(function, sampling))
    return samplerOptions(model.manifest().generation);
  if (sampling.logit_bias_count)
    needArgument((std::string(function) + ": logit_bias").c_str(),
                 sampling.logit_bias);
  SamplerOptions options;
#define QWEN_SAMPLING(Type, Field, Name, ...) options.Field = sampling.Name;
#include "qwen/ABI/SamplerOptions.def"
  for (const qwen_bias &each :
       std::span(sampling.logit_bias, sampling.logit_bias_count))
    options.logitBias.push_back({each.id, each.bias});
  options.seed = sampling.seed;
  return options;
}

const char *qwen_last_error(void) { return lastError.c_str(); }

const char *qwen_version(void) { return projectVersion(); }

qwen_model *qwen_load(const char *path, const qwen_options *options) {
  return guard<qwen_model *>([&] {
    needArgument("qwen_load: path", path);
    EngineOptions engineOptions{.snapshotBytes = kSnapshotBytes};
    int32_t threads = 0;
    if (options && hasValues("qwen_load", *options)) {
      checkOption("threads", options->threads, ThreadPool::kMaxThreads);
      checkOption("sequences", options->sequences, INT32_MAX);
      checkOption("check", options->check, QWEN_CHECK_OFF);
      threads = usableThreads(options->threads);
      engineOptions.sequences = std::max(1, options->sequences);
      engineOptions.kvPages = options->kv_pages;
      if (options->snapshot_bytes)
        engineOptions.snapshotBytes =
            std::max<int64_t>(0, options->snapshot_bytes);
      engineOptions.check = static_cast<WeightCheck>(options->check);
    }
    return new qwen_model(path, threads ? threads : defaultThreads(),
                          engineOptions);
  });
}

void qwen_free(qwen_model *model) { delete model; }

int32_t qwen_finish_check(qwen_model *model) {
  return guard<int32_t>([&] {
    needArgument("qwen_finish_check: model", model);
    model->engine().finishCheck();
    return 0;
  });
}

int32_t qwen_vocab_size(const qwen_model *model) {
  return guard<int32_t>([&] {
    needArgument("qwen_vocab_size: model", model);
    return static_cast<int32_t>(model->manifest().model.vocabSize);
  });
}

int64_t qwen_context_size(const qwen_model *model) {
  return guard<int64_t>([&] {
    needArgument("qwen_context_size: model", model);
    return model->manifest().model.context;
  });
}

int64_t qwen_model_info(const qwen_model *model, char *json, size_t capacity) {
  return guard<int64_t>([&] {
    needArgument("qwen_model_info: model", model);
    if (capacity)
      needArgument("qwen_model_info: json", json);
    return copyOut(model->artifact().manifestText(), json, capacity);
  });
}

int32_t qwen_token_id(const qwen_model *model, const char *name) {
  return guard<int32_t>([&] {
    needArgument("qwen_token_id: model", model);
    needArgument("qwen_token_id: name", name);
    if (const std::optional<int32_t> id =
            model->tokenizer().findAddedToken(name))
      return *id;
    throw Error("qwen_token_id: " + model->artifact().path() +
                " has no added token " + quote(name));
  });
}

int32_t qwen_is_end(const qwen_model *model, int32_t id) {
  return guard<int32_t>([&] {
    needArgument("qwen_is_end: model", model);
    const std::vector<int32_t> &ends = model->manifest().generation.eosTokenIds;
    return std::ranges::find(ends, id) != ends.end();
  });
}

int64_t qwen_tokenize(const qwen_model *model, const char *text, size_t size,
                      int32_t allow_special, int32_t *ids, size_t capacity) {
  return guard<int64_t>([&] {
    needArgument("qwen_tokenize: model", model);
    if (size)
      needArgument("qwen_tokenize: text", text);
    if (capacity)
      needArgument("qwen_tokenize: ids", ids);
    return copyOut(model->tokenizer().encode({text, size}, allow_special != 0),
                   ids, capacity);
  });
}

/// The chat template's variables in the arguments of `function`.
static nlohmann::ordered_json variablesOf(const std::string &function,
                                          const qwen_model *model,
                                          const char *json, size_t size) {
  needArgument((function + ": model").c_str(), model);
  needArgument((function + ": json").c_str(), json);
  return parseJsonObject<nlohmann::ordered_json>({json, size},
                                                 function + ": json");
}

int64_t qwen_render_chat(const qwen_model *model, const char *json, size_t size,
                         char *text, size_t capacity) {
  return guard<int64_t>([&] {
    const auto given = variablesOf("qwen_render_chat", model, json, size);
    if (capacity)
      needArgument("qwen_render_chat: text", text);
    return copyOut(model->chatFormat().render(given).bytes(), text, capacity);
  });
}

int64_t qwen_encode_chat(const qwen_model *model, const char *json, size_t size,
                         int32_t allow_special, int32_t *ids, size_t capacity) {
  return guard<int64_t>([&] {
    const auto variables = variablesOf("qwen_encode_chat", model, json, size);
    if (capacity)
      needArgument("qwen_encode_chat: ids", ids);
    return copyOut(model->chatFormat().encode(
                       variables, {.allowSpecial = allow_special != 0}),
                   ids, capacity);
  });
}

int64_t qwen_detokenize(const qwen_model *model, const int32_t *ids,
                        size_t count, char *text, size_t capacity) {
  return guard<int64_t>([&] {
    needArgument("qwen_detokenize: model", model);
    if (count)
      needArgument("qwen_detokenize: ids", ids);
    if (capacity)
      needArgument("qwen_detokenize: text", text);
    return copyOut(model->tokenizer().decode({ids, count}), text, capacity);
  });
}

int32_t qwen_open_sequence(qwen_model *model) {
  return guard<int32_t>([&] {
    needArgument("qwen_open_sequence: model", model);
    return model->engine().state().open();
  });
}

int32_t qwen_branch_sequence(qwen_model *model, int32_t sequence,
                             int64_t length) {
  return guard<int32_t>([&] {
    needArgument("qwen_branch_sequence: model", model);
    return model->engine().state().branch(sequence, length);
  });
}

int32_t qwen_close_sequence(qwen_model *model, int32_t sequence) {
  return guard<int32_t>([&] {
    needArgument("qwen_close_sequence: model", model);
    model->engine().state().close(sequence);
    return 0;
  });
}

int32_t qwen_truncate_sequence(qwen_model *model, int32_t sequence,
                               int64_t length) {
  return guard<int32_t>([&] {
    needArgument("qwen_truncate_sequence: model", model);
    model->engine().state().truncate(sequence, length);
    return 0;
  });
}

int32_t qwen_forward(qwen_model *model, const qwen_token *tokens, size_t count,
                     float *logits) {
  return guard<int32_t>([&] {
    needArgument("qwen_forward: model", model);
    if (count)
      needArgument("qwen_forward: tokens", tokens);
    const ModelInfo &info = model->manifest().model;
    model->batch.clear();
    model->failures = {};
    for (const qwen_token &token : std::span(tokens, count)) {
      const bool output = token.want_logits != 0;
      if (output) {
        needArgument("qwen_forward: logits", logits);
        info.output.requireLogits(info.name);
      }
      model->batch.push_back(
          {token.id, token.sequence, token.position, output});
    }
    // A token that does not run leaves its row as it is.
    size_t seen = 0;
    model->failures = model->engine().run(
        model->batch,
        [&](size_t index, std::span<float> row) {
          for (; seen < index; ++seen)
            logits += model->batch[seen].wanted ? row.size() : 0;
          std::ranges::copy(row, logits);
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
  return guard<int32_t>([&] {
    needArgument("qwen_set_progress: model", model);
    model->progress = {};
    if (progress)
      model->progress = [=](size_t done) { return progress(user, done) != 0; };
    return 0;
  });
}

int64_t qwen_failures(const qwen_model *model, qwen_failure *failures,
                      size_t capacity) {
  return guard<int64_t>([&] {
    needArgument("qwen_failures: model", model);
    if (capacity)
      needArgument("qwen_failures: failures", failures);
    const std::span<const Failure> all = model->failures;
    for (size_t i = 0; i < std::min(all.size(), capacity); ++i)
      failures[i] = {all[i].sequence, -static_cast<int32_t>(all[i].kind),
                     all[i].position};
    return static_cast<int64_t>(all.size());
  });
}

int64_t qwen_describe_failure(const qwen_model *model, size_t index, char *text,
                              size_t capacity) {
  return guard<int64_t>([&] {
    needArgument("qwen_describe_failure: model", model);
    if (capacity)
      needArgument("qwen_describe_failure: text", text);
    if (index >= model->failures.size())
      throw Error("qwen_describe_failure: index is " + std::to_string(index) +
                  " when " + std::to_string(model->failures.size()) +
                  " sequences failed");
    return copyOut(model->engine().describe(model->failures[index]), text,
                   capacity);
  });
}

int64_t qwen_pages(const qwen_model *model) {
  return guard<int64_t>([&] {
    needArgument("qwen_pages: model", model);
    return model->engine().state().pages();
  });
}

int64_t qwen_free_pages(const qwen_model *model) {
  return guard<int64_t>([&] {
    needArgument("qwen_free_pages: model", model);
    return model->engine().state().freePages();
  });
}

qwen_sampling qwen_default_sampling(const qwen_model *model) {
  return guard<qwen_sampling>([&] {
    needArgument("qwen_default_sampling: model", model);
    const SamplerOptions options = samplerOptions(model->manifest().generation);
    qwen_sampling sampling = {};
    sampling.size = sizeof(sampling);
#define QWEN_SAMPLING(Type, Field, Name, ...) sampling.Name = options.Field;
#include "qwen/ABI/SamplerOptions.def"
    return sampling;
  });
}

qwen_sampler *qwen_sampler_new(const qwen_model *model,
                               const qwen_sampling *sampling, uint64_t answer) {
  return guard<qwen_sampler *>([&] {
    needArgument("qwen_sampler_new: model", model);
    needArgument("qwen_sampler_new: sampling", sampling);
    const SamplerOptions options =
        samplerOptionsOf("qwen_sampler_new", *model, *sampling);
    const Manifest &manifest = model->manifest();
    const ModelInfo &info = manifest.model;
    return new qwen_sampler{Sampler(options, info.vocabSize,
                                    info.tokenizerVocab, answer,
                                    manifest.generation.eosTokenIds),
                            static_cast<size_t>(info.vocabSize)};
  });
}

qwen_sampler *qwen_sampler_copy(const qwen_sampler *sampler) {
  return guard<qwen_sampler *>([&] {
    needArgument("qwen_sampler_copy: sampler", sampler);
    return new qwen_sampler(*sampler);
  });
}

int32_t qwen_logprobs(const qwen_model *model, const float *logits,
                      const int32_t *ids, size_t count, float *logprobs) {
  return guard<int32_t>([&] {
    needArgument("qwen_logprobs: model", model);
    needArgument("qwen_logprobs: logits", logits);
    if (count) {
      needArgument("qwen_logprobs: ids", ids);
      needArgument("qwen_logprobs: logprobs", logprobs);
    }
    const ModelInfo &info = model->manifest().model;
    const double sum = logSumExp({logits, static_cast<size_t>(info.vocabSize)});
    for (size_t i = 0; i < count; ++i) {
      info.requireToken(ids[i]);
      logprobs[i] = static_cast<float>(logits[ids[i]] - sum);
    }
    return 0;
  });
}

int64_t qwen_top_tokens(const qwen_model *model, const float *logits,
                        int32_t *ids, size_t capacity) {
  return guard<int64_t>([&] {
    needArgument("qwen_top_tokens: model", model);
    needArgument("qwen_top_tokens: logits", logits);
    if (capacity)
      needArgument("qwen_top_tokens: ids", ids);
    std::vector<int32_t> top;
    topTokens({logits, static_cast<size_t>(qwen_vocab_size(model))}, capacity,
              top);
    std::ranges::copy(top, ids);
    return std::ssize(top);
  });
}

void qwen_sampler_free(qwen_sampler *sampler) { delete sampler; }

int32_t qwen_sampler_accept(qwen_sampler *sampler, int32_t id) {
  return guard<int32_t>([&] {
    needArgument("qwen_sampler_accept: sampler", sampler);
    sampler->sampler.acceptPrompt(id);
    return 0;
  });
}

int32_t qwen_sample(qwen_sampler *sampler, const float *logits,
                    int64_t position) {
  return guard<int32_t>([&] {
    needArgument("qwen_sample: sampler", sampler);
    needArgument("qwen_sample: logits", logits);
    const int32_t id = sampler->sampler.sample({logits, sampler->vocab},
                                               static_cast<uint64_t>(position));
    sampler->sampler.acceptDrawn(id);
    return id;
  });
}
