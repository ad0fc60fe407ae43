//===- BenchClients.cpp - Speed of a scheduler ----------------------------===//
//
// Decoding of requests through the scheduler, beside the same batches without
// it, in alternating measurements.
//
//===----------------------------------------------------------------------===//

#include "Bench.h"
#include "Output.h"
#include "engine/Scheduler.h"

#include "qwen/Support/Error.h"

#include <latch>

using namespace qwen;
using namespace qwen::run;
using Clock = std::chrono::steady_clock;

namespace {
/// Tokens a second, and seconds until the last client has its first token.
struct ClientSpeeds {
  double decode, firstToken;
};

/// Measures from the first token of the last client to the end of the first.
struct SteadyDecode {
  explicit SteadyDecode(int64_t clients) : withoutToken(clients) {}

  void onToken(bool isFirst) {
    if (isFirst && --withoutToken == 0)
      begin = Clock::now();
    else if (withoutToken == 0 && !isOver) {
      ++tokens;
      end = Clock::now();
    }
  }

  int64_t withoutToken;
  bool isOver = false;
  int64_t tokens = 0;
  Clock::time_point start = Clock::now(), begin, end;
};
} // namespace

static ClientSpeeds runClients(const BenchCommand &command, Engine &engine,
                               int64_t clients) {
  // Each repetition must read its prompts.
  Scheduler scheduler(engine, {.queue = static_cast<size_t>(clients),
                               .batcher = {.prefixCache = false}});
  std::latch running(clients);
  std::string error;
  SteadyDecode steady(clients);
  for (int64_t i = 0; i < clients; ++i) {
    Request request;
    for (int64_t j = 0; j < command.prompt; ++j)
      request.prompt.ids.push_back(benchToken(engine.manifest(), i + j));
    request.sampling.temperature = 0;
    request.maxTokens = command.count;
    request.onToken = [&](const TokenEvent &event) {
      steady.onToken(event.position == command.prompt);
      return true;
    };
    request.onEnd = [&](const Ending &ending) {
      steady.isOver = true;
      error += ending.error;
      running.count_down();
    };
    scheduler.submit(std::move(request));
  }
  running.wait();
  if (!error.empty())
    throw Error(error);
  if (steady.tokens == 0)
    throw Error("the first of " + std::to_string(clients) +
                " clients ended before all had their first token when -n is " +
                std::to_string(command.count) + "; use more tokens");
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  return {static_cast<double>(steady.tokens) /
              seconds(steady.end - steady.begin),
          seconds(steady.begin - steady.start)};
}

namespace {
/// The figures of a number of clients.
struct ClientFigures {
  JsonText toJson() const;
  /// A line for a terminal.
  std::string toText() const;

  int64_t clients;
  int32_t threads;
  Summary decode, batchDecode, firstToken;
};
} // namespace

JsonText ClientFigures::toJson() const {
  return jsonObject({{"clients", clients},
                     {"threads", threads},
                     {"decode_tokens_per_second", decode.toJson()},
                     {"batch_decode_tokens_per_second", batchDecode.toJson()},
                     {"first_token_seconds", firstToken.toJson()}});
}

std::string ClientFigures::toText() const {
  char line[200];
  snprintf(line, sizeof(line),
           "%lld clients: decode %.1f tokens/s, %.1f without the scheduler "
           "(%.2f); last first token after %.3f s\n",
           static_cast<long long>(clients), decode.median, batchDecode.median,
           decode.median / batchDecode.median, firstToken.median);
  return line;
}

/// Measures a number of clients, and as many sequences without a scheduler.
static ClientFigures measureClients(const BenchCommand &command, Model &model,
                                    int64_t clients) {
  BenchCommand batch = command;
  batch.batch = clients;
  EngineOptions options = command.options(model);
  options.sequences = static_cast<int32_t>(clients);
  const std::unique_ptr<Engine> started = command.start(model, options);
  Engine &engine = *started;
  std::vector<double> decode, firstToken, batchDecode;
  // The first repetition warms caches and is not counted.
  for (int64_t i = 0; i <= command.repetitions; ++i) {
    const double seconds = runSteps(batch, engine, {}).second;
    const ClientSpeeds speeds = runClients(command, engine, clients);
    if (i == 0)
      continue;
    batchDecode.push_back(static_cast<double>(command.count * clients) /
                          seconds);
    decode.push_back(speeds.decode);
    firstToken.push_back(speeds.firstToken);
  }
  finishCheck(model, engine);
  return {clients, engine.threads(), summary(decode), summary(batchDecode),
          summary(firstToken)};
}

void qwen::run::benchClients(const BenchCommand &command) {
  Model model(command.file.path());
  checkBenchLength(command, model.info());
  std::vector<JsonText> runs;
  std::string text;
  for (int64_t clients : command.clients) {
    const ClientFigures figures = measureClients(command, model, clients);
    runs.push_back(figures.toJson());
    text += figures.toText();
  }
  if (!command.json)
    return writeOut(text);
  writeJson(jsonObject({{"model", model.info().name},
                        {"repetitions", command.repetitions},
                        {"prompt_tokens", command.prompt},
                        {"decode_tokens", command.count},
                        {"runs", jsonArray(runs)}}),
            2);
}
