//===- CApiScheduler.cpp - C interface of the scheduler -------------------===//

#include "CApiModel.h"
#include "engine/Scheduler.h"

using namespace qwen;
using namespace qwen::capi;

struct qwen_scheduler {
  const qwen_model &model;
  Scheduler scheduler;
};

static_assert(static_cast<int>(EndReason::Stop) == QWEN_END_STOP &&
              static_cast<int>(EndReason::Length) == QWEN_END_LENGTH &&
              static_cast<int>(EndReason::Callback) == QWEN_END_CALLBACK &&
              static_cast<int>(EndReason::Cancelled) == QWEN_END_CANCELLED &&
              static_cast<int>(EndReason::Failed) == QWEN_END_FAILED);
static_assert(sizeof(qwen_logprob) == sizeof(TokenLogprob));

static int32_t passToken(const qwen_request &request, const TokenEvent &event) {
  const qwen_token_event token = {
      event.id,
      event.isPrompt,
      event.position,
      reinterpret_cast<const qwen_logprob *>(event.top.data()),
      event.top.size(),
      event.logprob};
  return request.on_token(request.user, &token);
}

static void passEnding(const qwen_request &request, const Ending &ending) {
  const bool failed = ending.reason == EndReason::Failed;
  const qwen_ending passed = {static_cast<int32_t>(ending.reason),
                              failed ? -static_cast<int32_t>(ending.kind) : 0,
                              ending.error.c_str(),
                              ending.promptTokens,
                              ending.cachedTokens,
                              ending.drawnTokens};
  request.on_end(request.user, &passed);
}

static Request toRequest(const qwen_model &model, const qwen_request &from) {
  checkSize("qwen_submit: the size of the request", from.size, sizeof(from));
  if (from.prompt_size)
    needArgument("qwen_submit: prompt", from.prompt);
  if (from.stop_count)
    needArgument("qwen_submit: stop_tokens", from.stop_tokens);
  Request request;
  request.prompt.assign(from.prompt, from.prompt + from.prompt_size);
  request.sampling =
      samplerOptionsOf("qwen_submit: sampling", model, from.sampling);
  request.answer = from.answer;
  if (from.max_tokens >= 0)
    request.maxTokens = from.max_tokens;
  request.stopTokens.assign(from.stop_tokens,
                            from.stop_tokens + from.stop_count);
  request.priority = from.priority;
  request.salt = from.salt;
  request.snapshotAt = from.snapshot_at;
  if (from.logprobs >= 0)
    request.logprobs = from.logprobs;
  request.scorePrompt = from.score_prompt != 0;
  if (from.on_hidden)
    request.rows = {RowKind::Hidden, [from](std::span<const float> values) {
                      from.on_hidden(from.user, values.data(), values.size());
                    }};
  if (from.on_token)
    request.onToken = [from](const TokenEvent &event) {
      return passToken(from, event) != 0;
    };
  if (from.on_progress)
    request.onProgress = [from](const Progress &progress) {
      from.on_progress(from.user, progress.done, progress.total);
    };
  if (from.on_end)
    request.onEnd = [from](const Ending &ending) { passEnding(from, ending); };
  return request;
}

qwen_scheduler *qwen_scheduler_new(qwen_model *model,
                                   const qwen_scheduler_options *options) {
  return guard<qwen_scheduler *>([&] {
    needArgument("qwen_scheduler_new: model", model);
    SchedulerOptions to;
    if (options && hasValues("qwen_scheduler_new", *options)) {
      if (options->queue > 0)
        to.queue = static_cast<size_t>(options->queue);
      if (options->snapshot_every > 0)
        to.batcher.snapshotEvery = options->snapshot_every;
      to.batcher.prefixCache = options->no_prefix_cache == 0;
    }
    return new qwen_scheduler{*model, Scheduler(model->engine(), to)};
  });
}

void qwen_scheduler_free(qwen_scheduler *scheduler) { delete scheduler; }

int64_t qwen_submit(qwen_scheduler *scheduler, const qwen_request *request) {
  return guard<int64_t>([&] {
    needArgument("qwen_submit: scheduler", scheduler);
    needArgument("qwen_submit: request", request);
    return static_cast<int64_t>(
        scheduler->scheduler.submit(toRequest(scheduler->model, *request)));
  });
}

int32_t qwen_cancel(qwen_scheduler *scheduler, int64_t id) {
  return guard<int32_t>([&] {
    needArgument("qwen_cancel: scheduler", scheduler);
    scheduler->scheduler.cancel(static_cast<RequestId>(id));
    return 0;
  });
}

qwen_counts qwen_scheduler_counts(const qwen_scheduler *scheduler) {
  return guard<qwen_counts>([&] {
    needArgument("qwen_scheduler_counts: scheduler", scheduler);
    const SchedulerCounts counts = scheduler->scheduler.counts();
    return qwen_counts{static_cast<int64_t>(counts.waiting),
                       static_cast<int64_t>(counts.running),
                       counts.freePages,
                       counts.sums.steps,
                       counts.sums.promptTokens,
                       counts.sums.cachedTokens,
                       counts.sums.drawnTokens,
                       counts.sums.preemptions};
  });
}
