//===- BenchGroups.cpp - Speed of engines on groups of cores --------------===//
//
// The groups run their prompts at the same time, and then decode at the same
// time. One engine on all of the cores runs as many sequences, in alternating
// measurements.
//
//===----------------------------------------------------------------------===//

#include "Bench.h"
#include "Output.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <barrier>
#include <exception>
#include <thread>
#include <utility>

using namespace qwen;
using namespace qwen::run;

namespace {
/// Seconds of the prompts and of the tokens after them.
using Times = std::pair<double, double>;

/// Tokens a second, one number for each repetition.
struct GroupSpeeds {
  void add(const BenchCommand &command, double sequences, Times seconds) {
    prefill.push_back(sequences * static_cast<double>(command.prompt) /
                      seconds.first);
    decode.push_back(sequences * static_cast<double>(command.count) /
                     seconds.second);
  }
  JsonText toJson() const {
    return jsonObject({{"prefill_tokens_per_second", summary(prefill).toJson()},
                       {"decode_tokens_per_second", summary(decode).toJson()}});
  }

  std::vector<double> prefill, decode;
};
} // namespace

/// Runs `batch` sequences in each engine, side by side. Returns the times of
/// the slowest.
static Times runSideBySide(const BenchCommand &command,
                           std::span<const std::unique_ptr<Engine>> engines) {
  std::barrier together(std::ssize(engines));
  std::vector<Times> times(engines.size());
  std::vector<std::exception_ptr> failures(engines.size());
  std::vector<std::jthread> threads;
  threads.reserve(engines.size());
  for (size_t i = 0; i < engines.size(); ++i)
    threads.emplace_back([&, i] {
      bool hasPrompt = false;
      const auto waitAfterPrompt = [&](const SequenceStep & /*step*/, double) {
        if (!std::exchange(hasPrompt, true))
          together.arrive_and_wait();
      };
      engines[i]->bindCaller();
      together.arrive_and_wait();
      try {
        times[i] = runSteps(command, *engines[i], waitAfterPrompt);
      } catch (...) {
        failures[i] = std::current_exception();
        together.arrive_and_drop();
      }
    });
  threads.clear();
  for (const std::exception_ptr &failure : failures)
    if (failure)
      std::rethrow_exception(failure);
  return {std::ranges::max(times, {}, &Times::first).first,
          std::ranges::max(times, {}, &Times::second).second};
}

static std::string line(const std::string &what, const GroupSpeeds &speeds) {
  char text[200];
  snprintf(text, sizeof(text),
           "%s: prefill %.1f tokens/s, decode %.1f tokens/s\n", what.c_str(),
           summary(speeds.prefill).median, summary(speeds.decode).median);
  return text;
}

void qwen::run::benchGroups(const BenchCommand &command) {
  const Model model(command.file.path());
  checkBenchLength(command, model.info());
  EngineOptions options = command.options(model);
  options.sequences = static_cast<int32_t>(command.batch);
  const EngineGroups groups = command.startGroups(model, options);
  const std::span engines = groups.engines();

  BenchCommand one = command;
  one.groups.count = 1;
  one.batch = command.batch * std::ssize(engines);
  options.sequences = static_cast<int32_t>(one.batch);
  const EngineGroups together = one.startGroups(model, options);

  const auto sequences = static_cast<double>(one.batch);
  GroupSpeeds apart, whole;
  // The first repetition warms caches and is not counted.
  for (int64_t i = 0; i <= command.repetitions; ++i) {
    const Times ofGroups = runSideBySide(command, engines);
    const Times ofOne = runSideBySide(one, together.engines());
    if (i == 0)
      continue;
    apart.add(command, sequences, ofGroups);
    whole.add(command, sequences, ofOne);
  }
  finishCheck(model, *engines.front());
  if (command.json) {
    std::vector<std::string> places;
    for (const auto &engine : engines)
      places.push_back(engine->describeThreads());
    writeJson(jsonObject({{"model", model.info().name},
                          {"repetitions", command.repetitions},
                          {"sequences", one.batch},
                          {"prompt_tokens", command.prompt},
                          {"decode_tokens", command.count},
                          {"engines", jsonArray(places)},
                          {"replicas", apart.toJson()},
                          {"one_engine", whole.toJson()},
                          {"peak_rss_bytes", processBytes("VmHWM")}}),
              2);
    return;
  }
  std::string text;
  for (const auto &engine : engines)
    text += "engine on " + engine->describeThreads() + "\n";
  text += line(std::to_string(engines.size()) + " engines of " +
                   std::to_string(command.batch) + " sequences",
               apart);
  text +=
      line("1 engine of " + std::to_string(one.batch) + " sequences", whole);
  char ratio[100];
  snprintf(ratio, sizeof(ratio), "ratio: prefill %.2f, decode %.2f\n",
           summary(apart.prefill).median / summary(whole.prefill).median,
           summary(apart.decode).median / summary(whole.decode).median);
  writeOut(text + ratio);
}
