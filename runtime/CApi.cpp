//===- CApi.cpp - C interface of the runtime ------------------------------===//

#include "qwenrt.h"

#include "Artifact.h"
#include "CpuCount.h"
#include "Engine.h"
#include "Sampler.h"
#include "Tokenizer.h"

#include "qwen/ABI/Error.h"

#include <algorithm>
#include <memory>
#include <optional>

using namespace qwen;

struct qwen_model {
  qwen_model(const char *path, const EngineOptions &options)
      : artifact(path), engine(artifact, options) {
    if (!artifact.tokenizer().empty())
      tokenizer = Tokenizer::fromBlob(artifact.tokenizer());
  }

  const Tokenizer &text() const {
    if (!tokenizer)
      throw Error(artifact.path() + " has no tokenizer");
    return *tokenizer;
  }

  Artifact artifact;
  Engine engine;
  std::optional<Tokenizer> tokenizer;
  std::vector<Token> batch;
};

struct qwen_sampler {
  Sampler sampler;
  size_t vocab;
};

static thread_local std::string lastError;

/// Runs `body`; an exception becomes lastError and `failed`.
template <typename ResultType, typename BodyType>
static ResultType guard(ResultType failed, BodyType body) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    lastError = "out of memory";
  } catch (const std::exception &error) {
    lastError = error.what();
  }
  return failed;
}

const char *qwen_last_error(void) { return lastError.c_str(); }

qwen_model *qwen_load(const char *path, const qwen_options *options) {
  return guard<qwen_model *>(nullptr, [&] {
    EngineOptions engineOptions;
    if (options) {
      engineOptions.threads = usableThreads(options->threads);
      engineOptions.sequences = options->sequences;
      engineOptions.kvPages = options->kv_pages;
    }
    return new qwen_model(path, engineOptions);
  });
}

void qwen_free(qwen_model *model) { delete model; }

int32_t qwen_vocab_size(const qwen_model *model) {
  return static_cast<int32_t>(model->artifact.manifest().model.vocabSize);
}

int64_t qwen_context_size(const qwen_model *model) {
  return model->artifact.manifest().model.context;
}

int32_t qwen_is_end(const qwen_model *model, int32_t id) {
  const std::vector<int32_t> &ends =
      model->artifact.manifest().generation.eosTokenIds;
  return std::ranges::find(ends, id) != ends.end();
}

int64_t qwen_tokenize(const qwen_model *model, const char *text, size_t size,
                      int32_t *ids, size_t capacity) {
  return guard<int64_t>(-1, [&] {
    const std::vector<int32_t> all = model->text().encode({text, size});
    std::copy_n(all.begin(), std::min(all.size(), capacity), ids);
    return static_cast<int64_t>(all.size());
  });
}

int64_t qwen_detokenize(const qwen_model *model, const int32_t *ids,
                        size_t count, char *text, size_t capacity) {
  return guard<int64_t>(-1, [&] {
    const std::string all = model->text().decode({ids, count});
    std::copy_n(all.begin(), std::min(all.size(), capacity), text);
    return static_cast<int64_t>(all.size());
  });
}

int32_t qwen_open_sequence(qwen_model *model) {
  return guard<int32_t>(-1, [&] { return model->engine.cache().open(); });
}

int32_t qwen_branch_sequence(qwen_model *model, int32_t sequence) {
  return guard<int32_t>(-1,
                        [&] { return model->engine.cache().branch(sequence); });
}

int32_t qwen_close_sequence(qwen_model *model, int32_t sequence) {
  return guard<int32_t>(-1, [&] {
    model->engine.cache().close(sequence);
    return 0;
  });
}

int32_t qwen_truncate_sequence(qwen_model *model, int32_t sequence,
                               int64_t length) {
  return guard<int32_t>(-1, [&] {
    model->engine.cache().truncate(sequence, length);
    return 0;
  });
}

int32_t qwen_forward(qwen_model *model, const qwen_token *tokens, size_t count,
                     float *logits) {
  return guard<int32_t>(-1, [&] {
    model->batch.clear();
    for (const qwen_token &token : std::span(tokens, count))
      model->batch.push_back(
          {token.id, token.sequence, token.position, token.want_logits != 0});
    model->engine.forward(model->batch, [&](size_t, std::span<float> row) {
      logits = std::ranges::copy(row, logits).out;
    });
    return 0;
  });
}

qwen_sampling qwen_default_sampling(const qwen_model *model) {
  const SamplerOptions options =
      samplerOptions(model->artifact.manifest().generation);
  return {options.temperature,       options.topK, options.topP, options.minP,
          options.repetitionPenalty, options.seed};
}

qwen_sampler *qwen_sampler_new(const qwen_model *model,
                               const qwen_sampling *sampling, uint64_t answer) {
  return guard<qwen_sampler *>(nullptr, [&] {
    SamplerOptions options;
    options.temperature = sampling->temperature;
    options.topK = sampling->top_k;
    options.topP = sampling->top_p;
    options.minP = sampling->min_p;
    options.repetitionPenalty = sampling->repetition_penalty;
    options.seed = sampling->seed;
    const ModelInfo &info = model->artifact.manifest().model;
    return new qwen_sampler{
        Sampler(options, info.vocabSize, info.tokenizerVocab, answer),
        static_cast<size_t>(info.vocabSize)};
  });
}

void qwen_sampler_free(qwen_sampler *sampler) { delete sampler; }

int32_t qwen_sampler_accept(qwen_sampler *sampler, int32_t id) {
  return guard<int32_t>(-1, [&] {
    sampler->sampler.accept(id);
    return 0;
  });
}

int32_t qwen_sample(qwen_sampler *sampler, const float *logits,
                    int64_t position) {
  return guard<int32_t>(-1, [&] {
    const int32_t id = sampler->sampler.sample({logits, sampler->vocab},
                                               static_cast<uint64_t>(position));
    sampler->sampler.accept(id);
    return id;
  });
}
