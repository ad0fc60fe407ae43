//===- Bench.cpp - Speed and memory of a model ----------------------------===//

#include "Bench.h"
#include "CommandTree.h"
#include "Commands.h"
#include "Output.h"
#include "Profile.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <functional>
#include <optional>

using namespace qwen;
using namespace qwen::run;
using Clock = std::chrono::steady_clock;

Summary qwen::run::summary(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

JsonText Summary::toJson() const {
  return jsonObject(
      {{"median", median}, {"least", least}, {"greatest", greatest}});
}

int32_t qwen::run::benchToken(const Manifest &manifest, int64_t i,
                              int64_t sequence) {
  return static_cast<int32_t>((i * 7919 + sequence * 104729 + 17) %
                              manifest.model.tokenizerVocab);
}

std::pair<double, double> qwen::run::runSteps(const BenchCommand &command,
                                              Engine &engine,
                                              const StepFn &stepDone) {
  const auto nothing = [](size_t, std::span<float>) {};
  const int64_t callTokens = engine.manifest().forward().limits.tokens;
  std::optional<FilledPage> filled;
  if (command.depth > 0)
    filled.emplace(engine);
  std::vector<SequenceId> sequences(static_cast<size_t>(command.batch));
  std::vector<Token> batch;
  batch.reserve(static_cast<size_t>(command.prompt * command.batch));
  for (int64_t number = 0; number < command.batch; ++number) {
    SequenceId &sequence = sequences[static_cast<size_t>(number)];
    sequence =
        filled ? filled->open(engine, command.depth) : engine.state().open();
    for (int64_t i = 0; i < command.prompt; ++i)
      batch.push_back({benchToken(engine.manifest(), i, number), sequence,
                       command.depth + i, i + 1 == command.prompt});
  }
  auto start = Clock::now();
  engine.forward(batch, nothing);
  const double prefill = secondsSince(start);
  if (stepDone)
    stepDone({command.depth, command.prompt, callTokens, command.batch},
             prefill);
  start = Clock::now();
  for (int64_t i = 0; i < command.count; ++i) {
    const int64_t position = command.depth + command.prompt + i;
    batch.clear();
    for (int64_t number = 0; number < command.batch; ++number)
      batch.push_back({benchToken(engine.manifest(), i, number),
                       sequences[static_cast<size_t>(number)], position, true});
    const auto stepStart = stepDone ? Clock::now() : start;
    engine.forward(batch, nothing);
    if (stepDone)
      stepDone({position, 1, callTokens, command.batch},
               secondsSince(stepStart));
  }
  const double decode = secondsSince(start);
  for (const SequenceId sequence : sequences)
    engine.state().close(sequence);
  return {prefill, decode};
}

namespace {
/// The times of each op over the repetitions of a benchmark.
struct Profiles {
  /// Draws the last repetition in `picture` if it is not null.
  Profiles(const BenchCommand &command, const Artifact &artifact,
           Engine &engine, OutputFile *picture);

  JsonText toJson() const;
  /// Tables of both, for a terminal.
  std::string toText(const BenchCommand &command) const;

  Peaks peaks;
  Profile prefill, decode;
};
} // namespace

Profiles::Profiles(const BenchCommand &command, const Artifact &artifact,
                   Engine &engine, OutputFile *picture)
    : peaks(measurePeaks(engine.threads(), artifact.weights(),
                         artifact.header().weights.size)),
      prefill(artifact.manifest()), decode(artifact.manifest()) {
  Tracer tracer(engine.threads());
  engine.trace(&tracer);
  const std::string of = artifact.manifest().model.name + ", " +
                         artifact.manifest().weightFormats();
  std::string parts;
  int height = 0;
  for (int64_t i = 0; i < command.repetitions; ++i) {
    const bool draw = picture && i + 1 == command.repetitions;
    runSteps(command, engine, [&](const SequenceStep &step, double seconds) {
      const bool isPrefill = step.first == command.depth;
      (isPrefill ? prefill : decode).add(tracer, step, seconds);
      if (draw &&
          (isPrefill ||
           step.first + 1 == command.depth + command.prompt + command.count))
        parts += drawStep(
            of + (isPrefill ? ", prefill of " + std::to_string(step.tokens)
                            : ", decode at " + std::to_string(step.first)),
            artifact.manifest(), tracer, height);
      tracer.clear();
    });
  }
  engine.trace(nullptr);
  if (!picture)
    return;
  const std::string svg = drawPicture(parts, height);
  picture->write(svg.data(), svg.size());
  picture->commit();
}

JsonText Profiles::toJson() const {
  return jsonObject(
      {{"limits", jsonObject({{"read_gb_per_second", peaks.readGB},
                              {"f32_gmac_per_second", peaks.floatGMac},
                              {"int8_gmac_per_second", peaks.integerGMac},
                              {"int8_instruction", peaks.integerInstruction}})},
       {"prefill", prefill.toJson()},
       {"decode", decode.toJson()}});
}

std::string Profiles::toText(const BenchCommand &command) const {
  const std::string prompt = std::to_string(command.prompt);
  const int64_t first = command.depth + command.prompt;
  const std::string sequences =
      command.batch == 1 ? ""
                         : ", " + std::to_string(command.batch) + " sequences";
  const std::string depth =
      command.depth == 0 ? "" : " at " + std::to_string(command.depth);
  return prefill.toText("prefill of " + prompt + depth + sequences, peaks) +
         decode.toText("decode at " + std::to_string(first) + " to " +
                           std::to_string(first + command.count - 1) +
                           sequences,
                       peaks);
}

namespace {
/// Tokens a second, one number for each repetition.
struct Speeds {
  std::vector<double> prefill, decode;
};

/// What a benchmark prints besides its profiles.
struct BenchFigures {
  JsonText toJson() const;
  /// For a terminal.
  std::string toText() const;

  const BenchCommand &command;
  std::string model, target, weights;
  int32_t threads;
  /// Tokens a second.
  Summary prefill, decode;
  double loadSeconds;
  uint64_t peakBytes, virtualBytes, fileBytes;
};
} // namespace

static Speeds measureSpeeds(const BenchCommand &command, Engine &engine) {
  const auto tokens = [&](int64_t each) {
    return static_cast<double>(each * command.batch);
  };
  Speeds speeds;
  // The first repetition warms caches and is not counted.
  for (int64_t i = 0; i <= command.repetitions; ++i) {
    const auto [prefillSeconds, decodeSeconds] = runSteps(command, engine, {});
    if (i == 0)
      continue;
    speeds.prefill.push_back(tokens(command.prompt) / prefillSeconds);
    speeds.decode.push_back(tokens(command.count) / decodeSeconds);
  }
  return speeds;
}

JsonText BenchFigures::toJson() const {
  return jsonObject({{"model", model},
                     {"target", target},
                     {"weights", weights},
                     {"threads", threads},
                     {"repetitions", command.repetitions},
                     {"sequences", command.batch},
                     {"depth", command.depth},
                     {"prompt_tokens", command.prompt},
                     {"decode_tokens", command.count},
                     {"prefill_tokens_per_second", prefill.toJson()},
                     {"decode_tokens_per_second", decode.toJson()},
                     {"load_seconds", loadSeconds},
                     {"peak_rss_bytes", peakBytes},
                     {"vm_bytes", virtualBytes},
                     {"file_bytes", fileBytes}});
}

std::string BenchFigures::toText() const {
  const auto mib = [](uint64_t bytes) {
    return static_cast<double>(bytes) / (1024 * 1024);
  };
  const auto whole = [](int64_t value) {
    return static_cast<long long>(value);
  };
  char text[640];
  snprintf(text, sizeof(text),
           "%s, %s, %d threads, median of %lld (least to greatest)\n"
           "prefill  %.1f tokens/s (%.1f to %.1f), %lld tokens\n"
           "decode   %.1f tokens/s (%.1f to %.1f), %lld tokens\n"
           "load     %.2f ms\n"
           "memory   %.1f MiB resident at most, %.1f MiB virtual, "
           "file %.1f MiB\n",
           target.c_str(), weights.c_str(), threads, whole(command.repetitions),
           prefill.median, prefill.least, prefill.greatest,
           whole(command.prompt), decode.median, decode.least, decode.greatest,
           whole(command.count), loadSeconds * 1e3, mib(peakBytes),
           mib(virtualBytes), mib(fileBytes));
  return text;
}

void qwen::run::checkBenchLength(const BenchCommand &command,
                                 const ModelInfo &model) {
  if (command.depth % kPageTokens != 0)
    throw Error("a depth of " + std::to_string(command.depth) +
                " is not a multiple of " + std::to_string(kPageTokens) +
                ", the positions of a page");
  if (command.depth + command.prompt > model.context - command.count)
    throw Error(
        (command.depth == 0 ? std::string("a prompt of ")
                            : "a depth of " + std::to_string(command.depth) +
                                  ", a prompt of ") +
        std::to_string(command.prompt) + " and " +
        std::to_string(command.count) +
        " more tokens do not fit in the context of " +
        std::to_string(model.context) + " that the model was compiled for");
}

static void bench(const BenchCommand &command) {
  std::optional<OutputFile> picture;
  if (!command.svg.empty())
    picture.emplace(command.svg);
  const auto loadStart = Clock::now();
  Model opened(command.file.path());
  EngineOptions options = command.options(opened);
  options.sequences = static_cast<int32_t>(command.batch);
  // The fixed state of a filled page is a snapshot.
  if (command.depth > 0)
    options.snapshotBytes =
        bytesOf(opened.artifact().manifest().caches, CacheKind::Fixed);
  const std::unique_ptr<Engine> started = command.start(opened, options);
  Engine &engine = *started;
  const double loadSeconds = secondsSince(loadStart);

  const Artifact &artifact = opened.artifact();
  const ModelInfo &model = opened.info();
  checkBenchLength(command, model);

  const Speeds speeds = measureSpeeds(command, engine);
  std::optional<Profiles> profiles;
  if (command.profile)
    profiles.emplace(command, artifact, engine, picture ? &*picture : nullptr);
  finishCheck(opened, engine);

  const TargetInfo &target = artifact.selectTarget(hostArch(), hostFeatures());
  const BenchFigures figures = {.command = command,
                                .model = model.name,
                                .target = target.name,
                                .weights = artifact.manifest().weightFormats(),
                                .threads = engine.threads(),
                                .prefill = summary(speeds.prefill),
                                .decode = summary(speeds.decode),
                                .loadSeconds = loadSeconds,
                                .peakBytes = processBytes("VmHWM"),
                                .virtualBytes = processBytes("VmSize"),
                                .fileBytes = artifact.fileSize()};
  if (command.json) {
    const JsonText result = figures.toJson();
    writeJson(
        profiles
            ? joinObjects(result, jsonObject({{"profile", profiles->toJson()}}))
            : result,
        2);
    return;
  }
  writeOut(figures.toText());
  if (profiles)
    writeOut(profiles->toText(command));
}

void qwen::run::addBench(const Command &program) {
  const auto command = std::make_shared<BenchCommand>();
  const Command sub = program.addCommand("bench", "Measure speed and memory");
  addFile(sub, command->file);
  sub.group("Runs");
  const Option depth = sub.addNumber(
      "--depth", command->depth,
      "Positions of a sequence before its prompt, which are copies "
      "of one page: whole pages of 64",
      0, kMost);
  sub.addNumber("--prompt-tokens", command->prompt, "Tokens of the prompt", 1,
                kMost);
  sub.addNumber("-n,--count", command->count, "Tokens to decode", 1, kMost);
  const Option batch =
      sub.addNumber("--batch", command->batch, "Sequences in a batch", 1, 1024);
  const Option clients =
      sub.addNumbers("--clients", command->clients,
                     "Numbers of requests that a scheduler answers at once, "
                     "compared with --batch of as many; default is none",
                     1, 1024)
          .excludes(batch)
          .excludes(depth);
  const Option replay =
      sub.addTexts("--replay", command->replay,
                   "JSON file with \"prompt\" and \"answer\", each a text or a "
                   "list of ids, whose answer takes the place of drawn tokens "
                   "with and without the drafts of --speculate; sequences "
                   "take the files in turn; default is none")
          .type(kFileType)
          .repeatable()
          .excludes(clients)
          .excludes(depth);
  sub.addNumbers("--drafts", command->drafts,
                 "Drafts of each answer in a step of --replay, several for "
                 "several runs; 0 is as many as save time",
                 0, 1024)
      .defaultText("0")
      .needs(replay);
  sub.addNumber("--acceptance", command->acceptance,
                "Chance with which --replay makes a draft right, whatever the "
                "text has; default is to replay the text",
                0, 1)
      .needs(replay);
  sub.addNumber("--repetitions", command->repetitions, "Number of measurements",
                1, kMost);
  sub.addFlag("--json", command->json, "Print JSON");
  sub.group("Further measurements");
  const Option profile = sub.addFlag(
      "--profile", command->profile,
      "Measure the time of each op in as many further runs, and compare it "
      "with the limits of this machine");
  profile.excludes(clients).excludes(replay);
  sub.addText("--svg", command->svg,
              "File for a picture of the last profiled prefill and decode, "
              "by thread (SVG); default is none")
      .type(kFileType)
      .needs(profile);
  sub.addFlag("--bandwidth", command->bandwidth,
              "Compare decoding with the memory bandwidth; runs no prompt")
      .excludes(profile)
      .excludes(clients)
      .excludes(batch)
      .excludes(depth)
      .excludes(replay);
  addRun(sub, *command, {EnginePart::Answers});
  addGroups(sub, command->groups);
  const Option groups = sub.option("--replicas");
  for (const char *other :
       {"--bandwidth", "--clients", "--depth", "--profile", "--replay"})
    groups.excludes(sub.option(other));
  sub.option("--numa").needs(groups);
  sub.onRun([command, sub, groups] {
    if (command->engine.speculate != Speculate::Off &&
        command->replay.empty() && command->clients.empty())
      throw UsageError(sub, "--speculate needs --replay or --clients");
    if (command->bandwidth)
      bandwidth(*command);
    else if (!command->replay.empty())
      benchReplay(*command);
    else if (!command->clients.empty())
      benchClients(*command);
    else if (groups.isGiven())
      benchGroups(*command);
    else
      bench(*command);
  });
}
