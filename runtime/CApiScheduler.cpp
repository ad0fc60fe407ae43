//===- CApiScheduler.cpp - C interface of the scheduler -------------------===//

#include "CApiModel.h"
#include "CApiStruct.h"
#include "CApiUpdates.h"
#include "engine/RootTable.h"
#include "engine/Scheduler.h"
#include "text/AnswerParser.h"

using namespace qwen;
using namespace qwen::capi;

struct qwen_scheduler {
  qwen_scheduler(qwen_model &ofModel, SchedulerOptions options)
      : model(ofModel),
        updates(options.queue +
                static_cast<size_t>(ofModel.engine().state().maxSequences())),
        scheduler(ofModel.engine(), withUpdates(std::move(options))) {}

  // Before the scheduler tells ends that nobody may read any more.
  ~qwen_scheduler() { updates.release(); }
  qwen_scheduler(const qwen_scheduler &) = delete;
  qwen_scheduler &operator=(const qwen_scheduler &) = delete;

  SchedulerOptions withUpdates(SchedulerOptions options) {
    options.onStep = [this] { updates.publish(); };
    return options;
  }

  const qwen_model &model;
  RootTable roots;
  Updates updates;
  Scheduler scheduler;
};

static_assert(static_cast<int>(EndReason::Stop) == QWEN_END_STOP &&
              static_cast<int>(EndReason::Length) == QWEN_END_LENGTH &&
              static_cast<int>(EndReason::Callback) == QWEN_END_CALLBACK &&
              static_cast<int>(EndReason::Cancelled) == QWEN_END_CANCELLED &&
              static_cast<int>(EndReason::Failed) == QWEN_END_FAILED);
static_assert(
    static_cast<int>(EarlyStopping::False) == QWEN_EARLY_STOPPING_FALSE &&
    static_cast<int>(EarlyStopping::True) == QWEN_EARLY_STOPPING_TRUE &&
    static_cast<int>(EarlyStopping::Never) == QWEN_EARLY_STOPPING_NEVER);
static_assert(sizeof(qwen_logprob) == sizeof(TokenLogprob));

static int32_t passToken(const qwen_request &request, const TokenEvent &event) {
  const qwen_token_event token = {
      sizeof(token),   event.id,
      event.position,  event.isPrompt,
      event.logprob,   reinterpret_cast<const qwen_logprob *>(event.top.data()),
      event.top.size()};
  return request.on_token(request.user, &token);
}

static void passEnding(const qwen_request &request, const Ending &ending) {
  const bool failed = ending.reason == EndReason::Failed;
  const qwen_ending passed = {sizeof(passed),
                              static_cast<int32_t>(ending.reason),
                              failed ? -static_cast<int32_t>(ending.kind) : 0,
                              ending.error.c_str(),
                              ending.promptTokens,
                              ending.cachedTokens,
                              ending.drawnTokens};
  request.on_end(request.user, &passed);
}

static std::optional<int32_t> passDraw(const qwen_request &request,
                                       std::span<const float> logits,
                                       int64_t position) {
  const qwen_draw draw = {sizeof(draw), position, logits.data()};
  const int32_t id = request.on_draw(request.user, &draw);
  return id < 0 ? std::nullopt : std::optional(id);
}

static void passAnswers(const qwen_request &request,
                        std::span<const BeamTokens> answers) {
  for (const BeamTokens &answer : answers) {
    const qwen_beam_answer passed = {sizeof(passed), answer.score,
                                     answer.ids.data(), answer.logprobs.data(),
                                     answer.ids.size()};
    request.on_answer(request.user, &passed);
  }
}

static void addBeams(Request &to, const qwen_beams &given) {
  const qwen_beams from = readStruct("qwen_submit: beams", given);
#define QWEN_BEAM_OPTION(Type, Field, Name, ...) to.beams.Field = from.Name;
#include "qwen/ABI/BeamOptions.def"
  // 0 is the default.
  to.beams.groups = from.num_beam_groups ? from.num_beam_groups : 1;
  to.answers = from.answers ? from.answers : 1;
  if (from.early_stopping < QWEN_EARLY_STOPPING_FALSE ||
      from.early_stopping > QWEN_EARLY_STOPPING_NEVER)
    throw Error("qwen_submit: early_stopping is " +
                std::to_string(from.early_stopping) + " when 0 to 2 is needed");
  to.beams.earlyStopping = static_cast<EarlyStopping>(from.early_stopping);
}

/// Throws Error if a request asks for rows in two ways, or in none that there
/// is.
static void checkRows(const qwen_request &from) {
  if (from.want_rows < QWEN_WANT_NOTHING || from.want_rows > QWEN_WANT_HIDDEN)
    throw Error("qwen_submit: want_rows is " + std::to_string(from.want_rows) +
                " when 0 to 2 is needed");
  const char *asked = nullptr;
  const auto take = [&](bool isSet, const char *name) {
    if (isSet && asked)
      throw Error("qwen_submit: " + std::string(asked) + " and " + name +
                  " are both set");
    asked = isSet ? name : asked;
  };
  take(from.on_hidden, "on_hidden");
  take(from.on_logits, "on_logits");
  take(from.want_rows, "want_rows");
}

/// Writes the rows of a prompt to the memory of the program.
static void copyRows(PromptRows &rows, const qwen_request &from,
                     const ModelInfo &model) {
  const int64_t width = rows.kind == RowKind::Hidden
                            ? model.hiddenSize
                            : model.output.width(model.vocabSize);
  const size_t needed =
      std::min(rows.count, from.prompt_size) * static_cast<size_t>(width);
  needArgument("qwen_submit: rows", from.rows);
  if (from.rows_size < needed)
    throw Error("qwen_submit: rows has " + std::to_string(from.rows_size) +
                " floats when " + std::to_string(needed) + " are needed");
  rows.receive = [to = from.rows](std::span<const float> row) mutable {
    to = std::ranges::copy(row, to).out;
  };
}

/// Makes the functions of `to` that get a row or choose a token.
static void addRows(Request &to, const qwen_request &from,
                    const ModelInfo &model) {
  checkRows(from);
  PromptRows rows = {.kind = RowKind::Hidden, .receive = {}};
  if (from.row_count)
    rows.count = from.row_count < 0 ? from.prompt_size
                                    : static_cast<size_t>(from.row_count);
  const auto pass = [&](RowKind kind, auto function) {
    if (function)
      rows = {kind,
              [=, user = from.user](std::span<const float> row) {
                function(user, row.data(), row.size());
              },
              rows.count};
  };
  pass(RowKind::Hidden, from.on_hidden);
  pass(RowKind::Logits, from.on_logits);
  if (from.want_rows) {
    rows.kind =
        from.want_rows == QWEN_WANT_HIDDEN ? RowKind::Hidden : RowKind::Logits;
    copyRows(rows, from, model);
  }
  if (rows.receive)
    to.rows = std::move(rows);
  if (from.on_draw)
    to.onDraw = [from](std::span<const float> logits, int64_t position) {
      return passDraw(from, logits, position);
    };
}

/// Makes the functions of `to` that tell what has happened.
static void addFunctions(Request &to, const qwen_request &from) {
  if (from.on_token)
    to.onToken = [from](const TokenEvent &event) {
      return passToken(from, event) != 0;
    };
  if (from.on_progress)
    to.onProgress = [from](const Progress &progress) {
      const qwen_progress passed = {sizeof(passed), progress.done,
                                    progress.total, progress.cached};
      from.on_progress(from.user, &passed);
    };
  if (from.on_answer)
    to.onAnswers = [from](std::span<const BeamTokens> answers) {
      passAnswers(from, answers);
    };
  if (from.on_end)
    to.onEnd = [from](const Ending &ending) { passEnding(from, ending); };
}

/// Makes functions that tell the same by updates.
static void addUpdates(Request &to, const qwen_request &from, Updates &updates,
                       const std::shared_ptr<UpdateSource> &source) {
  to.onToken = [=, &updates](const TokenEvent &event) {
    updates.add(source, event);
    return true;
  };
  if (from.updates & QWEN_UPDATES_PROGRESS)
    to.onProgress = [=, &updates](const Progress &progress) {
      updates.add(source, progress);
    };
  to.onAnswers = [=, &updates](std::span<const BeamTokens> answers) {
    updates.add(source, answers);
  };
  to.onEnd = [=, &updates](const Ending &ending) {
    if (from.on_end)
      passEnding(from, ending);
    updates.end(source, ending);
  };
}

static void checkUpdates(const qwen_request &from) {
  constexpr int32_t kAll =
      QWEN_UPDATES_ANSWER | QWEN_UPDATES_PROGRESS | QWEN_UPDATES_AT_END;
  if (from.updates & ~kAll)
    throw Error("qwen_submit: updates are " + std::to_string(from.updates) +
                " when a sum of 0, 1, 2 and 4 is needed");
  if (from.updates && (from.on_token || from.on_progress || from.on_answer))
    throw Error("qwen_submit: updates take the place of on_token, on_progress "
                "and on_answer, which must be NULL");
}

/// Lets the answer keep to a grammar.
static void addGrammar(Request &to, const qwen_request &from,
                       const qwen_model &model) {
  if (!from.grammar)
    return;
  if (from.grammar->model != &model)
    throw Error("qwen_submit: the grammar is of another model");
  // They may leave no token of those that the grammar allows.
  if (!to.sampling.texts.badWords.empty() || to.sampling.noRepeatNgram > 0)
    throw Error("qwen_submit: grammar excludes bad_words and "
                "no_repeat_ngram_size");
  to.constraint =
      from.grammar->start(to.prompt.ids, from.grammar_after_reasoning != 0);
}

namespace {
/// The same tokens at each place of an answer.
class AllowedTokens final : public TokenConstraint {
public:
  AllowedTokens(const ModelInfo &model, std::span<const int32_t> ids)
      : words(static_cast<size_t>(model.vocabSize + kBits - 1) / kBits) {
    for (const int32_t id : ids) {
      model.requireToken(id);
      words[static_cast<size_t>(id / kBits)] |= 1U << id % kBits;
    }
  }

  std::span<const uint32_t> allowed() override { return words; }
  void accept(int32_t) override {}
  bool isDone() const override { return false; }

private:
  static constexpr int32_t kBits = 32;
  std::vector<uint32_t> words;
};
} // namespace

/// Lets the answer have no other tokens than some.
static void addAllowed(Request &to, const qwen_request &from,
                       const ModelInfo &model) {
  if (!from.allowed_tokens)
    return;
  if (from.grammar)
    throw Error("qwen_submit: allowed_tokens excludes grammar");
  if (from.allowed_count == 0)
    throw Error("qwen_submit: allowed_count is 0 when 1 or more is needed");
  to.constraint = std::make_shared<AllowedTokens>(
      model, std::span(from.allowed_tokens, from.allowed_count));
}

/// Ends the reasoning when its budget is used up. The parser of a program lags
/// behind, so that the request has its own.
static void addBudget(Request &to, const qwen_request &from,
                      const qwen_model &model) {
  if (!from.has_budget)
    return;
  if (from.on_draw || from.beams)
    throw Error("qwen_submit: has_budget excludes on_draw and beams");
  if (from.reasoning_budget < 0)
    throw Error("qwen_submit: reasoning_budget is " +
                std::to_string(from.reasoning_budget) +
                " when 0 or more is needed");
  const auto parser = std::make_shared<AnswerParser>(
      model.tokenizer(), &model.answerFormat(), to.prompt.ids,
      AnswerOptions{.ends = model.ends(),
                    .reasoningBudget = from.reasoning_budget});
  to.onDraw = [parser](auto...) { return parser->next(); };
  to.onToken = [parser, told = std::move(to.onToken)](const TokenEvent &event) {
    if (!event.isPrompt)
      parser->push(event.id);
    return !told || told(event);
  };
}

static Request toRequest(qwen_scheduler &scheduler, const qwen_request &from) {
  if (from.prompt_size)
    needArgument("qwen_submit: prompt", from.prompt);
  if (from.stop_count)
    needArgument("qwen_submit: stop_tokens", from.stop_tokens);
  Request request;
  request.prompt.ids.assign(from.prompt, from.prompt + from.prompt_size);
  request.sampling =
      samplerOptionsOf("qwen_submit: sampling", scheduler.model, from.sampling);
  request.answer = from.answer;
  if (from.max_tokens >= 0)
    request.maxTokens = from.max_tokens;
  request.stopTokens.assign(from.stop_tokens,
                            from.stop_tokens + from.stop_count);
  request.priority = from.priority;
  if (from.salt)
    request.prompt.root =
        scheduler.roots.intern({.salt = std::to_string(from.salt)});
  request.snapshotAt = from.snapshot_at;
  if (from.top_logprobs < 0)
    throw Error("qwen_submit: top_logprobs is " +
                std::to_string(from.top_logprobs) +
                " when 0 or more is needed");
  if (from.logprobs)
    request.logprobs = from.top_logprobs;
  request.scorePrompt = from.score_prompt != 0;
  if (from.beams)
    addBeams(request, *from.beams);
  addRows(request, from, scheduler.model.info());
  addGrammar(request, from, scheduler.model);
  addAllowed(request, from, scheduler.model.info());
  return request;
}

/// Submits a request that has updates.
static RequestId submitWithUpdates(qwen_scheduler &scheduler, Request request,
                                   const qwen_request &from) {
  const auto source = scheduler.updates.open(
      from.channel, from.user, (from.updates & QWEN_UPDATES_AT_END) != 0);
  try {
    addUpdates(request, from, scheduler.updates, source);
    addBudget(request, from, scheduler.model);
    const RequestId id = scheduler.scheduler.submit(std::move(request));
    scheduler.updates.start(*source, id);
    return id;
  } catch (...) {
    scheduler.updates.drop(*source);
    throw;
  }
}

static RequestId submit(qwen_scheduler &scheduler, const qwen_request &from) {
  checkUpdates(from);
  Request request = toRequest(scheduler, from);
  if (from.updates)
    return submitWithUpdates(scheduler, std::move(request), from);
  addFunctions(request, from);
  addBudget(request, from, scheduler.model);
  return scheduler.scheduler.submit(std::move(request));
}

qwen_scheduler *qwen_scheduler_new(qwen_model *model,
                                   const qwen_scheduler_options *options) {
  return with<qwen_scheduler *>(__func__, model, [&] {
    qwen_scheduler_options from = {};
    if (options)
      from = readStruct("qwen_scheduler_new: options", *options);
    SchedulerOptions to;
    if (from.queue > 0)
      to.queue = static_cast<size_t>(from.queue);
    if (from.snapshot_every > 0)
      to.batcher.snapshotEvery = from.snapshot_every;
    to.batcher.prefixCache = from.no_prefix_cache == 0;
    return new qwen_scheduler(*model, to);
  });
}

int32_t qwen_scheduler_close(qwen_scheduler *scheduler) {
  return with<int32_t>(__func__, scheduler, [&] {
    scheduler->scheduler.close();
    scheduler->updates.close();
    return 0;
  });
}

void qwen_scheduler_free(qwen_scheduler *scheduler) { delete scheduler; }

int64_t qwen_submit(qwen_scheduler *scheduler, const qwen_request *request) {
  return with<int64_t>(__func__, scheduler, [&](Need need) {
    need("request", request);
    return static_cast<int64_t>(
        submit(*scheduler, readStruct("qwen_submit: request", *request)));
  });
}

int32_t qwen_cancel(qwen_scheduler *scheduler, int64_t id) {
  return with<int32_t>(__func__, scheduler, [&] {
    scheduler->scheduler.cancel(static_cast<RequestId>(id));
    return 0;
  });
}

int64_t qwen_scheduler_next(qwen_scheduler *scheduler, int64_t channel,
                            qwen_update *updates, size_t capacity,
                            int64_t timeout) {
  return with<int64_t>(__func__, scheduler, [&](Need need) {
    need("updates", updates);
    if (capacity == 0)
      throw Error(
          "qwen_scheduler_next: capacity is 0 when 1 or more is needed");
    // The clock has no more: 146 years.
    constexpr int64_t kMostTimeout = INT64_MAX / 2000000;
    std::optional<std::chrono::milliseconds> limit;
    if (timeout >= 0 && timeout < kMostTimeout)
      limit = std::chrono::milliseconds(timeout);
    return static_cast<int64_t>(
        scheduler->updates.next(channel, {updates, capacity}, limit));
  });
}

int32_t qwen_scheduler_counts(const qwen_scheduler *scheduler,
                              qwen_counts *counts) {
  return with<int32_t>(__func__, scheduler, [&](Need need) {
    need("counts", counts);
    const SchedulerCounts now = scheduler->scheduler.counts();
    writeStruct("qwen_scheduler_counts: counts",
                qwen_counts{sizeof(qwen_counts),
                            static_cast<int64_t>(now.waiting),
                            static_cast<int64_t>(now.running), now.freePages,
                            now.sums.steps, now.sums.promptTokens,
                            now.sums.cachedTokens, now.sums.drawnTokens,
                            now.sums.preemptions},
                counts);
    return 0;
  });
}
