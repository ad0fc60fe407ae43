//===- Options.cpp - Options that several commands share ------------------===//

#include "Options.h"
#include "Output.h"

#include "cache/CompiledModel.h"
#include "chat/Screen.h"
#include "engine/CpuCount.h"
#include "jinja/ChatTemplate.h"

#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/InputError.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <chrono>
#include <limits>

using namespace qwen;
using namespace qwen::run;

const std::string &ModelFile::path() const {
  if (flags->dryRun) {
    writeOut(screenText(describeCompile(given, flags->arguments)));
    throw CLI::Success();
  }
  if (compiled.empty())
    compiled = compiledModel(given, flags->arguments);
  return compiled;
}

void qwen::run::addFile(CLI::App *app, ModelFile &file, const char *name,
                        const char *part) {
  app->add_option(name, file.given,
                  std::string(part) +
                      ": a compiled file, a checkpoint folder, a GGUF file, or "
                      "a name in Hugging Face's cache; options of qwen-opt, "
                      "such as --weights, may follow")
      ->required();
  // Later, because the command's own options come first. A second model of a
  // command has the options of the first.
  app->preparse_callback([app, flags = file.flags](size_t) {
    constexpr char kDryRun[] = "--dry-run";
    if (!app->get_option_no_throw(kDryRun))
      app->add_flag(kDryRun, flags->dryRun,
                    "Say what would be compiled, and do nothing");
    addCompileOptions(*app, flags->arguments);
  });
}

static void addCheck(CLI::App *app, WeightCheck &check) {
  app->add_option_function<std::string>(
         "--check",
         [&check](const std::string &when) {
           check = when == "now"   ? WeightCheck::Now
                   : when == "off" ? WeightCheck::Off
                                   : WeightCheck::Background;
         },
         std::string("Compare the weights with their checksums while the model "
                     "runs (background), before (now) or never (off); default "
                     "is ") +
             (check == WeightCheck::Off ? "off" : "background"))
      ->check(CLI::IsMember({"background", "now", "off"}));
}

void qwen::run::addRun(CLI::App *app, RunFlags &flags) {
  addNumber(app, "-t,--threads", flags.threads,
            flags.anyThreads
                ? "Threads, possibly more than cores; does not change the "
                  "result"
                : "Threads; default is the number of physical performance "
                  "cores, maximum the number of physical cores",
            1, ThreadPool::kMaxThreads);
  addCheck(app, flags.check);
  app->add_flag("--lock", flags.lock,
                "Lock the weights in memory, so that they are never paged out");
}

void qwen::run::addPiece(CLI::App *app, int64_t &piece) {
  addNumber(app, "--piece", piece,
            "Maximum tokens in one call; does not change the result", 1, kMost);
}

void qwen::run::addSnapshots(CLI::App *app, SnapshotFlags &snapshots) {
  addNumber(app, "--snapshot-every", snapshots.every,
            "Tokens from one snapshot of a sequence's fixed state to the next "
            "(models with linear attention)",
            1, kMost)
      ->default_str(std::to_string(snapshots.every));
  addNumber(app, "--snapshot-bytes", snapshots.bytes,
            "Maximum memory of snapshots in bytes; 0: take none", 0,
            std::numeric_limits<int64_t>::max())
      ->default_str(std::to_string(snapshots.bytes));
}

/// The flag of a parameter of requests.
static std::string dashed(std::string name) {
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

/// Adds an option for a field of SamplerOptions. The sampler checks the ranges
/// of floating-point numbers.
template <typename T>
static void addSamplingOption(CLI::App *app, const std::string &name,
                              std::optional<T> &to, T usual, const char *help) {
  addNumber(app, dashed(name), to, help,
            std::is_integral_v<T> ? std::min<T>(0, usual)
                                  : std::numeric_limits<T>::lowest());
}

/// "ID=NUMBER".
static TokenBias parseBias(const std::string &option, const std::string &text) {
  constexpr float kFloats = std::numeric_limits<float>::max();
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw CLI::ValidationError(option, quote(text) + " is not ID=NUMBER");
  return {
      parseNumber<int32_t>(option, text.substr(0, equals), 0, kMost),
      parseNumber<float>(option, text.substr(equals + 1), -kFloats, kFloats)};
}

static void addPreset(CLI::App *app, std::string &name) {
  std::string help;
  std::vector<std::string> names;
  for (const SamplerPreset &preset : samplerPresets()) {
    names.emplace_back(preset.name);
    help += (help.empty() ? "Settings that go together (" : "; ") +
            names.back() + ": " + std::string(preset.help);
  }
  app->add_option("--preset", name,
                  help + "); other options replace single ones")
      ->check(CLI::IsMember(names));
}

static void addSamplers(CLI::App *app,
                        std::optional<std::vector<SamplerKind>> &to) {
  std::string names;
  for (std::string_view name : samplerNames())
    names += (names.empty() ? "" : ",") + std::string(name);
  app->add_option_function<std::vector<std::string>>(
         "--samplers",
         [&to](const std::vector<std::string> &given) {
           try {
             to = parseSamplers(given);
           } catch (const Error &error) {
             throw CLI::ValidationError("--samplers", error.what());
           }
         },
         "Samplers in their order; others are off; default is " + names)
      ->delimiter(',')
      ->type_name("NAME,...")
      ->allow_extra_args(false);
}

void qwen::run::addSampling(CLI::App *app, SamplingFlags &flags) {
  addPreset(app, flags.preset);
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      Help)                                                    \
  addSamplingOption<Type>(app, #Name, flags.Field, Default, Help);
#include "qwen/ABI/SamplerOptions.def"
  app->add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [&flags](const std::vector<std::string> &texts) {
           for (const std::string &text : texts)
             flags.logitBias.push_back(parseBias("--logit-bias", text));
         },
         "Numbers that are added to the logits of tokens")
      ->delimiter(',')
      ->type_name("ID=FLOAT,...")
      ->allow_extra_args(false);
  app->add_option("--bad-words", flags.texts.badWords,
                  "A text that the answer must not contain; may come again")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app->add_option_function<std::vector<std::string>>(
         "--dry-sequence-breakers",
         [&flags](const std::vector<std::string> &texts) {
           // One empty text stands for none.
           flags.texts.dryBreakers = texts;
           std::erase(*flags.texts.dryBreakers, "");
         },
         "A text that DRY does not look past; may come again; default is "
         "newline, colon, quotation mark and asterisk, and \"\" is none")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  addSamplers(app, flags.samplers);
  addNumber(app, "--seed", flags.seed,
            "Seed of the random numbers; default is 0", 0);
}

void qwen::run::addBeams(CLI::App *app, BeamFlags &flags) {
  CLI::Option *search = nullptr;
  const auto needSearch = [&](CLI::Option *option) {
    search ? option->needs(search) : search = option;
  };
#define QWEN_BEAM_OPTION(Type, Field, Name, Default, Least, Most, Help)        \
  needSearch(addNumber(app, dashed(#Name), flags.options.Field, Help,          \
                       static_cast<Type>(Least), static_cast<Type>(Most)));
#include "qwen/ABI/BeamOptions.def"
  needSearch(
      app->add_option_function<std::string>(
             "--early-stopping",
             [&flags](const std::string &word) {
               flags.options.earlyStopping = static_cast<EarlyStopping>(
                   std::ranges::find(kEarlyStoppingWords, word) -
                   kEarlyStoppingWords.begin());
             },
             "When a beam search with as many answers as beams ends: at once "
             "(true), when no beam would be better now (false), or when none "
             "can become better (never); default is false")
          ->check(CLI::IsMember(std::vector<std::string>(
              kEarlyStoppingWords.begin(), kEarlyStoppingWords.end()))));
  needSearch(addNumber(app, "--num-return-sequences", flags.answers,
                       "Number of answers of a beam search, best first", 1,
                       kMost));
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
  const int32_t count = anyThreads ? threads : limitThreads(threads);
  return std::make_shared<ThreadPool>(count ? count : defaultThreads());
}

EngineOptions RunFlags::options(const Model &model) const {
  EngineOptions options;
  options.check = limitCheck(check, model.artifact());
  options.lock = lock;
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

void qwen::run::finishCheck(Model &model) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t left = model.engine().finishCheck(
      [start] { return secondsSince(start) >= kFinishSeconds; });
  if (left)
    writeError("qwen-run: " + std::to_string(left) + " of " +
               std::to_string(model.artifact().weightMiBs()) +
               " MiB of the weights of " + model.path() +
               " are not checked; --check now checks all before the start\n");
}
