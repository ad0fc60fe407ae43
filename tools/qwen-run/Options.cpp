//===- Options.cpp - Options that several commands share ------------------===//

#include "Options.h"
#include "CommandTree.h"
#include "MemorySpeed.h"
#include "Output.h"
#include "TableOptions.h"

#include "cache/CompiledModel.h"
#include "cache/ModelSource.h"
#include "chat/Screen.h"
#include "engine/CpuCount.h"
#include "engine/drafters/Drafters.h"
#include "jinja/ChatTemplate.h"

#include "qwen/ABI/GenerationConfig.h"
#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/InputError.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>

using namespace qwen;
using namespace qwen::run;

/// The heading of options that change no result.
static constexpr char kMachineGroup[] = "Threads and memory";

const std::string &ModelFile::path(FilePlace place) const {
  if (flags->dryRun) {
    writeOut(screenText(describeCompile(given, flags->arguments)));
    throw CommandDone();
  }
  if (compiled.empty()) {
    // The compiler is another process, whose inputs are not noted here.
    noteInput();
    compiled = compiledModel(given, flags->arguments, place);
  }
  return compiled;
}

void ModelFile::noteInput() const {
  qwen::noteInput(given);
  for (const auto &[name, file] : findModel(given).files())
    qwen::noteInput(file.string());
}

Option qwen::run::addFile(const Command &command, ModelFile &file,
                          const char *name, const char *part) {
  const Option argument =
      command
          .addText(name, file.given,
                   std::string(part) +
                       ": a compiled file, a checkpoint folder, a GGUF file, "
                       "or a name in Hugging Face's cache; options of "
                       "qwen-opt, such as --weights, may follow")
          .required();
  // Later, because the command's own options come first. A second model of a
  // command has the options of the first.
  command.onBegin([command, flags = file.flags] {
    constexpr char kDryRun[] = "--dry-run";
    if (!command.findOption(kDryRun))
      command
          .addFlag(kDryRun, flags->dryRun,
                   "Say what would be compiled, and do nothing")
          .group("Compile");
    addCompileOptions(command, flags->arguments);
  });
  return argument;
}

/// The option of a parameter of requests or of a member of qwen_options.
static std::string dashed(std::string name) {
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

/// Adds an option of the engine, by its type.
template <typename T, typename Least, typename Most>
static void addEngineOption(const Command &command, const std::string &names,
                            RunFlags & /*flags*/, T &to,
                            const std::string &unit, Least least, Most most,
                            const std::string &help) {
  addTableOption(command, names, to, unit, least, most, help);
}

/// A drafter's word, or the file of a smaller model.
static void addEngineOption(const Command &command, const std::string &names,
                            RunFlags &flags, Speculate &to,
                            const std::string & /*unit*/, int /*least*/,
                            size_t /*most*/, const std::string &help) {
  const std::vector<std::string> words(kSpeculateWords.begin(),
                                       kSpeculateWords.end());
  const auto set = [&flags, &to, names, words](const std::string &value) {
    const auto word = std::ranges::find(words, value);
    flags.draftModel.clear();
    to = static_cast<Speculate>(word - words.begin());
    if (word != words.end())
      return;
    if (!std::filesystem::exists(value))
      throw InvalidValue(names, quote(value) + " is none of " +
                                    joined(words, ", ") + " and no file");
    noteInput(value);
    flags.draftModel = value;
    to = Speculate::Auto;
  };
  command
      .addText(names, set,
               help + ", or with the smaller compiled model of "
                      "a file, which has the same tokens")
      .type(std::string(kFileType) + "|" + joined(words, "|"))
      .suggest(words)
      .defaultText(words[static_cast<size_t>(to)]);
}

void qwen::run::addRun(const Command &command, RunFlags &flags,
                       std::initializer_list<EnginePart> parts) {
  const auto has = [&](EnginePart part) {
    return part == EnginePart::Run || std::ranges::count(parts, part) > 0;
  };
  if (!has(EnginePart::Snapshots))
    flags.engine.snapshotBytes = 0;
  command.group(kMachineGroup);
#define QWEN_ENGINE_OPTION(Part, Type, Field, Name, Short, Default, Unit,      \
                           Least, Most, Help)                                  \
  if (has(EnginePart::Part))                                                   \
    addEngineOption(command, (*(Short) ? "-" Short "," : "") + dashed(#Name),  \
                    flags, flags.engine.Field, Unit, Least, Most, Help);
#include "engine/EngineOptions.def"
  if (flags.anyThreads)
    command.option("--threads")
        .help("Threads, possibly more than cores; default is the number of "
              "physical performance cores; does not change the result");
}

/// Adds an option for a field of SamplerOptions. The sampler checks the ranges
/// of floating-point numbers.
template <typename T>
static void addSamplingOption(const Command &command, const std::string &name,
                              std::optional<T> &to, T usual,
                              const std::string &help) {
  const bool isModels = std::ranges::any_of(
      kSamplingFacts, [&](const auto &fact) { return name == fact.key; });
  const Option option = command.addNumber(
      dashed(name), to, help + (isModels ? "; default is the model's" : ""),
      std::is_integral_v<T> ? std::min<T>(0, usual)
                            : std::numeric_limits<T>::lowest());
  if (!isModels)
    option.defaultText(numberText(usual));
}

/// "ID=NUMBER".
static TokenBias parseBias(const std::string &option, const std::string &text) {
  constexpr float kFloats = std::numeric_limits<float>::max();
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw InvalidValue(option, quote(text) + " is not ID=NUMBER");
  return {
      parseNumber<int32_t>(option, text.substr(0, equals), 0, kMost),
      parseNumber<float>(option, text.substr(equals + 1), -kFloats, kFloats)};
}

static void addPreset(const Command &command, std::string &name) {
  std::string help;
  std::vector<std::string> names;
  for (const SamplerPreset &preset : samplerPresets()) {
    names.emplace_back(preset.name);
    help += (help.empty() ? "Settings that go together (" : "; ") +
            names.back() + ": " + std::string(preset.help);
  }
  command
      .addText("--preset", name,
               help + "); other options replace single ones; default "
                      "is none")
      .choices(names);
}

static void addSamplers(const Command &command,
                        std::optional<std::vector<SamplerKind>> &to) {
  std::string names;
  for (std::string_view name : samplerNames())
    names += (names.empty() ? "" : ",") + std::string(name);
  command
      .addTexts(
          "--samplers",
          [&to](const std::vector<std::string> &given) {
            try {
              to = parseSamplers(given);
            } catch (const Error &error) {
              throw InvalidValue("--samplers", error.what());
            }
          },
          "Samplers in their order; others are off; default is " + names)
      .list(',')
      .type("NAME,...");
}

void qwen::run::addSampling(const Command &command, SamplingFlags &flags) {
  command.group("Sampling");
  addPreset(command, flags.preset);
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      Help)                                                    \
  addSamplingOption<Type>(command, #Name, flags.Field, Default, Help);
#include "qwen/ABI/SamplerOptions.def"
  command
      .addTexts(
          "--logit-bias",
          [&flags](const std::vector<std::string> &texts) {
            for (const std::string &text : texts)
              flags.logitBias.push_back(parseBias("--logit-bias", text));
          },
          "Numbers that are added to the logits of tokens; default is none")
      .list(',')
      .type("ID=FLOAT,...");
  command
      .addTexts("--bad-words", flags.texts.badWords,
                "A text that the answer must not contain; may come again; "
                "default is none")
      .type("TEXT")
      .repeatable();
  command
      .addTexts(
          "--dry-sequence-breakers",
          [&flags](const std::vector<std::string> &texts) {
            // One empty text stands for none.
            flags.texts.dryBreakers = texts;
            std::erase(*flags.texts.dryBreakers, "");
          },
          "A text that DRY does not look past; may come again; default is "
          "newline, colon, quotation mark and asterisk, and \"\" is none")
      .type("TEXT")
      .repeatable();
  addSamplers(command, flags.samplers);
  command.addNumber("--seed", flags.seed, "Seed of the random numbers", 0)
      .defaultText(numberText(SamplerOptions().seed));
}

void qwen::run::addBeams(const Command &command, BeamFlags &flags) {
  command.group("Beam search");
  std::optional<Option> search;
  const auto needSearch = [&](Option option) {
    search ? option.needs(*search) : search.emplace(option);
  };
#define QWEN_BEAM_OPTION(Type, Field, Name, Default, Least, Most, Help)        \
  needSearch(command.addNumber(dashed(#Name), flags.options.Field, Help,       \
                               static_cast<Type>(Least),                       \
                               static_cast<Type>(Most)));
#include "qwen/ABI/BeamOptions.def"
  needSearch(command.addChoice(
      "--early-stopping", flags.options.earlyStopping,
      {kEarlyStoppingWords.begin(), kEarlyStoppingWords.end()},
      "When a beam search with as many answers as beams ends: at once (true), "
      "when no beam would be better now (false), or when none can become "
      "better "
      "(never)"));
  needSearch(command.addNumber("--num-return-sequences", flags.answers,
                               "Number of answers of a beam search, best first",
                               1, kMost));
}

SamplerOptions SamplingFlags::apply(const GenerationConfig &generation) const {
  SamplerOptions options = samplerOptions(generation);
  if (!preset.empty())
    samplerPreset(preset).apply(options);
#define QWEN_SAMPLING(Type, Field, Name, ...)                                  \
  options.Field = Field.value_or(options.Field);
#include "qwen/ABI/SamplerOptions.def"
  options.logitBias = logitBias;
  options.seed = seed.value_or(options.seed);
  options.texts = texts;
  options.samplers = samplers;
  return options;
}

/// Time for the rest of the check after the last token: enough for several GiB,
/// and short for a user who waits for the end.
static constexpr double kFinishSeconds = 1;

/// The number of threads for the option -t `threads`: at most usableThreads,
/// with a line on standard error if that is fewer. 0 stays 0.
static int32_t limitThreads(int32_t threads) {
  const int32_t usable = usableThreads(threads);
  if (usable < threads)
    writeError("qwen-run: -t " + std::to_string(threads) +
               " is more than the physical cores that this process may use; "
               "it runs with " +
               std::to_string(usable) + "\n");
  return usable;
}

/// Turns WeightCheck::Background into Off if the file exceeds the free memory.
/// Reports on standard error how such a file runs.
static WeightCheck limitCheck(WeightCheck check, const Artifact &artifact) {
  const WeightCheck usable = usableCheck(check, artifact.fileSize());
  if (exceedsFreeMemory(artifact.fileSize()))
    writeError("qwen-run: " + artifact.path() +
               " is larger than the free memory: tokens wait for the weights "
               "that the system reads from the file" +
               (usable == check ? ""
                                : ", and these are not checked; qwen-run info "
                                  "--check checks them") +
               "\n");
  return usable;
}

std::shared_ptr<ThreadPool> RunFlags::pool() const {
  const int32_t count =
      anyThreads ? engine.threads : limitThreads(engine.threads);
  return std::make_shared<ThreadPool>(count ? count : defaultThreads());
}

std::shared_ptr<MemoryBudget> RunFlags::budget() const {
  auto result = std::make_shared<MemoryBudget>();
  if (engine.maxMemory)
    result->limitTo(static_cast<uint64_t>(engine.maxMemory), "--max-memory");
  return result;
}

void RunFlags::reportDrafts(const Model &model, const Engine &started) const {
  const auto report = [](const std::string &what, const std::string &why) {
    if (!why.empty())
      writeError("qwen-run: " + what + ": " + why + "\n");
  };
  report(model.path() + " gets no drafts", whyNoDrafts(started));
  if (const Engine *drafts = started.draftEngine())
    report(draftModel + " drafts nothing", drafts->whyNoSteps());
}

std::unique_ptr<Engine>
RunFlags::start(const Model &model, const EngineOptions &engineOptions,
                const std::shared_ptr<MemoryBudget> &shared) const {
  auto started = makeEngine(model, pool(), shared ? shared : budget(),
                            engineOptions, draftModel);
  reportDrafts(model, *started);
  return started;
}

EngineGroups
RunFlags::startGroups(const Model &model, const EngineOptions &engineOptions,
                      const std::shared_ptr<MemoryBudget> &shared) const {
  const std::vector<CoreGroup> chosen =
      chooseGroups(groups, limitThreads(engine.threads));
  if (chosen.empty())
    return EngineGroups(start(model, engineOptions, shared));
  EngineGroups started(model, chosen, shared ? shared : budget(), engineOptions,
                       draftModel,
                       copiesWeights(groups.weights, chosen, nodeSpeed));
  reportDrafts(model, *started.engines().back());
  return started;
}

EngineOptions RunFlags::options(const Model &model) const {
  EngineOptions options = engine;
  options.check = limitCheck(engine.check, model.artifact());
  return options;
}

std::string qwen::run::readTemplate(const std::string &file) {
  if (file.empty())
    return "";
  std::string text =
      readFile(file, ChatTemplate::kMaxBytes, "a chat template is short");
  if (text.empty())
    throw InputError(file + " is empty: a chat template is needed");
  try {
    ChatTemplate::parse(text);
  } catch (const Error &error) {
    throw InputError(file + ": " + error.what());
  }
  return text;
}

void qwen::run::finishCheck(const Model &model, Engine &engine) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t left = engine.finishCheck(
      [start] { return secondsSince(start) >= kFinishSeconds; });
  if (left)
    writeError("qwen-run: " + std::to_string(left) + " of " +
               std::to_string(model.artifact().weightMiBs()) +
               " MiB of the weights of " + model.path() +
               " are not checked; --check now checks all before the start\n");
}
