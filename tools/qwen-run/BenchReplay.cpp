//===- BenchReplay.cpp - Speed of known answers, with drafts --------------===//
//
// Runs the answers of files in place of drawn ones, without and with drafts, in
// alternating measurements. The drafter sees the tokens before its drafts only,
// as it does of drawn ones.
//
//===----------------------------------------------------------------------===//

#include "Bench.h"
#include "Output.h"
#include "engine/Batcher.h"
#include "engine/drafters/Drafters.h"
#include "engine/drafters/ForwardingDrafter.h"

#include "qwen/Support/InputError.h"
#include "qwen/Support/JsonValue.h"

#include <map>

#include <nlohmann/json.hpp>

using namespace qwen;
using namespace qwen::run;
using Clock = std::chrono::steady_clock;

namespace {
struct ReplayText {
  std::vector<int32_t> prompt, answer;
};

/// What is measured of the steps that decode, until the first answer ends.
struct ReplayRun {
  double tokens = 0, seconds = 0, steps = 0;
  /// Of the part after the first tokens of each answer.
  double laterTokens = 0, laterSeconds = 0;
  double drafted = 0, accepted = 0;
};

/// The seconds of steps by their rows.
using StepSeconds = std::map<int64_t, std::vector<double>>;
} // namespace

/// Tokens of an answer after which its later part begins: by then, the drafter
/// has been measured.
static constexpr size_t kLaterFrom = 50;

/// A text, or a list of ids.
static std::vector<int32_t> tokensOf(const nlohmann::json &object,
                                     const char *key, const Model &model,
                                     const std::string &file) {
  const auto value = object.find(key);
  std::vector<int32_t> ids;
  if (value != object.end() && value->is_string())
    ids = model.tokenizer().encode(value->get<std::string>(), true);
  else if (value != object.end() && value->is_array() &&
           std::ranges::all_of(*value, [&](const nlohmann::json &id) {
             return id.is_number_unsigned() &&
                    id.get<uint64_t>() <
                        static_cast<uint64_t>(model.info().vocabSize);
           }))
    ids = value->get<std::vector<int32_t>>();
  else
    throw InputError(file + ": \"" + key +
                     "\" must be a text or a list of token ids of " +
                     model.path());
  if (ids.empty())
    throw InputError(file + ": \"" + key + "\" is empty");
  return ids;
}

static ReplayText readReplay(const std::string &file, const Model &model) {
  constexpr uint64_t kMostBytes = 1 << 24;
  const std::string text =
      readFile(file, kMostBytes, "a text of a benchmark is short");
  try {
    const auto object = parseJsonObject<nlohmann::json>(text, part::file(file));
    ReplayText replay = {tokensOf(object, "prompt", model, file),
                         tokensOf(object, "answer", model, file)};
    model.info().requirePrompt(replay.prompt, file);
    if (std::ssize(replay.prompt) + std::ssize(replay.answer) >
        model.info().context)
      throw InputError(file + " has " + std::to_string(replay.prompt.size()) +
                       " and " + std::to_string(replay.answer.size()) +
                       " tokens, which do not fit in the context of " +
                       std::to_string(model.info().context));
    return replay;
  } catch (const InputError &) {
    throw;
  } catch (const Error &error) {
    throw InputError(error.what());
  }
}

namespace {
/// The drafts of each sequence, by their positions.
using KnownDrafts = std::vector<std::map<int64_t, int32_t>>;

/// Notes the drafts of another drafter. Request i + 1 is sequence i.
class NotingDrafter final : public ForwardingDrafter {
public:
  NotingDrafter(std::unique_ptr<Drafter> other, KnownDrafts &known)
      : ForwardingDrafter(std::move(other)), known(known) {}

  void draft(const Track &track, int64_t most,
             std::vector<int32_t> &tokens) override {
    ForwardingDrafter::draft(track, most, tokens);
    auto &notes = known[static_cast<size_t>(track.job().id()) - 1];
    notes.clear();
    for (size_t i = 0; i < tokens.size(); ++i)
      notes[track.settledSize() + static_cast<int64_t>(i)] = tokens[i];
  }

private:
  KnownDrafts &known;
};

/// One run of all answers.
class Replay {
public:
  Replay(Engine &engine, const std::vector<ReplayText> &texts,
         BatcherOptions options, std::optional<double> acceptance)
      : acceptance(acceptance), known(texts.size()),
        batcher(engine, noting(std::move(options))), drawn(texts.size()) {
    for (size_t i = 0; i < texts.size(); ++i)
      batcher.add(std::make_unique<Job>(requestOf(texts[i], i), i + 1,
                                        engine.manifest().model));
  }

  ReplayRun run(StepSeconds &byRows) {
    while (!hasEach(1))
      step();
    ReplayRun result;
    while (!isOver) {
      const BatcherCounts before = batcher.counts();
      const bool isLater = hasEach(kLaterFrom);
      const double seconds = step();
      const BatcherCounts after = batcher.counts();
      const int64_t tokens = after.drawnTokens - before.drawnTokens;
      const int64_t drafted = after.draftTokens - before.draftTokens;
      const int64_t accepted = after.acceptedTokens - before.acceptedTokens;
      result.tokens += static_cast<double>(tokens);
      result.seconds += seconds;
      ++result.steps;
      if (isLater) {
        result.laterTokens += static_cast<double>(tokens);
        result.laterSeconds += seconds;
      }
      result.drafted += static_cast<double>(drafted);
      result.accepted += static_cast<double>(accepted);
      byRows[tokens - accepted + drafted].push_back(seconds);
    }
    batcher.cancelAll();
    if (!error.empty())
      throw Error(error);
    return result;
  }

private:
  /// Options of a batcher that notes drafts, if they are to be right by chance.
  BatcherOptions noting(BatcherOptions options) {
    if (acceptance && !options.drafter)
      options.drafter = [this](Engine &engine) {
        return std::make_unique<NotingDrafter>(
            makeDrafter(engine.speculate(), engine), known);
      };
    return options;
  }
  Request requestOf(const ReplayText &text, size_t index) {
    Request request;
    request.prompt.ids = text.prompt;
    request.maxTokens = std::ssize(text.answer);
    request.onDraw = [this, &text, index](std::span<const float>,
                                          int64_t position) {
      const auto place = static_cast<uint64_t>(position);
      const auto draft = known[index].find(position);
      if (draft == known[index].end())
        return text.answer[place - text.prompt.size()];
      const bool isRight = tokenRandoms(0, index, place).draw < *acceptance;
      const int32_t wrong = draft->second > 0 ? draft->second - 1 : 1;
      return isRight ? draft->second : wrong;
    };
    request.onToken = [this, index](const TokenEvent &) {
      ++drawn[index];
      return true;
    };
    request.onEnd = [this](const Ending &ending) {
      isOver = true;
      error += ending.error;
    };
    return request;
  }
  bool hasEach(size_t count) const {
    return isOver ||
           std::ranges::all_of(drawn, [&](size_t of) { return of >= count; });
  }
  double step() {
    const auto start = Clock::now();
    batcher.step();
    return secondsSince(start);
  }

  const std::optional<double> acceptance;
  KnownDrafts known;
  Batcher batcher;
  std::vector<size_t> drawn;
  bool isOver = false;
  std::string error;
};

/// The runs with a number of drafts. -1: none; 0: as many as save time.
struct ReplayFigures {
  JsonText toJson() const;
  std::string toText(const ReplayFigures &plain) const;
  double speed() const;

  int64_t drafts;
  std::vector<ReplayRun> runs = {};
};
} // namespace

/// The median over the runs of a quotient.
static double medianOf(const std::vector<ReplayRun> &runs,
                       double ReplayRun::*of, double ReplayRun::*by) {
  std::vector<double> values;
  values.reserve(runs.size());
  for (const ReplayRun &run : runs)
    values.push_back(run.*by > 0 ? run.*of / (run.*by) : 0);
  return summary(values).median;
}

double ReplayFigures::speed() const {
  return medianOf(runs, &ReplayRun::tokens, &ReplayRun::seconds);
}

JsonText ReplayFigures::toJson() const {
  return jsonObject(
      {{"drafts", drafts},
       {"tokens_per_second", speed()},
       {"later_tokens_per_second",
        medianOf(runs, &ReplayRun::laterTokens, &ReplayRun::laterSeconds)},
       {"tokens_per_step",
        medianOf(runs, &ReplayRun::tokens, &ReplayRun::steps)},
       {"drafted_per_step",
        medianOf(runs, &ReplayRun::drafted, &ReplayRun::steps)},
       {"accepted",
        medianOf(runs, &ReplayRun::accepted, &ReplayRun::drafted)}});
}

std::string ReplayFigures::toText(const ReplayFigures &plain) const {
  const std::string name = drafts < 0    ? "without drafts"
                           : drafts == 0 ? "with drafts that pay"
                                         : std::to_string(drafts) + " drafts";
  char line[200];
  snprintf(
      line, sizeof(line),
      "%-22s %.1f tokens/s (%.2f), %.2f tokens and %.2f drafts a step, %.0f%% "
      "accepted\n",
      name.c_str(), speed(), speed() / plain.speed(),
      medianOf(runs, &ReplayRun::tokens, &ReplayRun::steps),
      medianOf(runs, &ReplayRun::drafted, &ReplayRun::steps),
      100 * medianOf(runs, &ReplayRun::accepted, &ReplayRun::drafted));
  return line;
}

/// Runs without drafts and with each number of `command.drafts`.
static std::vector<ReplayFigures>
measureReplays(const BenchCommand &command, Engine &engine,
               const std::vector<ReplayText> &texts, StepSeconds &byRows) {
  std::vector<ReplayFigures> figures = {{.drafts = -1}};
  if (engine.speculate() != Speculate::Off) {
    for (int64_t drafts : command.drafts)
      figures.push_back({.drafts = drafts});
    if (command.drafts.empty())
      figures.push_back({.drafts = 0});
  }
  for (int64_t i = 0; i < command.repetitions; ++i)
    for (ReplayFigures &each : figures) {
      BatcherOptions options = {.paced = false, .prefixCache = false};
      options.drafts = std::max<int64_t>(each.drafts, 0);
      if (each.drafts < 0)
        options.drafter = [](Engine &) { return std::unique_ptr<Drafter>(); };
      each.runs.push_back(
          Replay(engine, texts, options, command.acceptance).run(byRows));
    }
  return figures;
}

void qwen::run::benchReplay(const BenchCommand &command) {
  Model model(command.file.path());
  std::vector<ReplayText> texts;
  texts.reserve(static_cast<size_t>(command.batch));
  for (int64_t i = 0; i < command.batch; ++i)
    texts.push_back(readReplay(
        command.replay[static_cast<size_t>(i) % command.replay.size()], model));
  EngineOptions options = command.options(model);
  options.sequences = static_cast<int32_t>(command.batch);
  const std::unique_ptr<Engine> engine = command.start(model, options);
  StepSeconds byRows;
  const std::vector<ReplayFigures> figures =
      measureReplays(command, *engine, texts, byRows);
  finishCheck(model, *engine);
  std::vector<JsonText> runs, steps;
  std::string text;
  for (const ReplayFigures &each : figures) {
    runs.push_back(each.toJson());
    text += each.toText(figures.front());
  }
  for (const auto &[rows, seconds] : byRows)
    steps.push_back(jsonObject({{"rows", rows},
                                {"steps", std::ssize(seconds)},
                                {"median_seconds", summary(seconds).median}}));
  if (!command.json)
    return writeOut(text);
  writeJson(jsonObject({{"model", model.info().name},
                        {"sequences", command.batch},
                        {"repetitions", command.repetitions},
                        {"runs", jsonArray(runs)},
                        {"step_seconds", jsonArray(steps)}}),
            2);
}
