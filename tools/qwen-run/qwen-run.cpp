//===- qwen-run.cpp - Runs compiled models --------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "Output.h"
#include "artifact/File.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Process.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <sstream>

using namespace qwen;
using namespace qwen::run;

static constexpr int64_t kMost = INT32_MAX;

static void addFile(CLI::App *app, std::string &file) {
  app->add_option("FILE", file, "Compiled model")->required();
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

/// Adds the flags but the file, which stands first.
static void addRun(CLI::App *app, RunFlags &flags) {
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

static void addPiece(CLI::App *app, int64_t &piece) {
  addNumber(app, "--piece", piece,
            "Maximum tokens in one call; does not change the result", 1, kMost);
}

static void addSnapshots(CLI::App *app, SnapshotFlags &snapshots) {
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

/// Adds an option for a field of SamplerOptions. The sampler checks the ranges
/// of floating-point numbers.
template <typename T>
static void addSamplingOption(CLI::App *app, std::string name,
                              std::optional<T> &to, const char *help) {
  std::ranges::replace(name, '_', '-');
  addNumber(app, "--" + name, to, help,
            std::is_integral_v<T> ? 0 : std::numeric_limits<T>::lowest());
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

static void addSampling(CLI::App *app, SamplingFlags &flags) {
#define QWEN_SAMPLING(Type, Field, Name, Default, Least, Most, Valid, Needed,  \
                      Help)                                                    \
  addSamplingOption(app, #Name, flags.Field, Help);
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
  addNumber(app, "--seed", flags.seed,
            "Seed of the random numbers; default is 0", 0);
}

static void addGenerate(CLI::App &app, GenerateCommand &command) {
  CLI::App *sub = app.add_subcommand("generate", "Continue a text");
  addFile(sub, command.file);
  CLI::Option *prompt = sub->add_option("-p,--prompt", command.prompt,
                                        "Text to continue; default is standard "
                                        "input");
  sub->add_option("--ids", command.ids,
                  "Prompt as token ids (1,2,3); the answer is printed as ids")
      ->excludes(prompt);
  addNumber(sub, "-n,--count", command.count,
            "Maximum tokens to generate; default is the rest of the context", 0,
            kMost);
  addSampling(sub, command.sampling);
  sub->add_flag("--ignore-eos", command.ignoreEos,
                "Continue past the tokens that end an answer");
  addRun(sub, command);
  addPiece(sub, command.piece);
  sub->callback([&command] { generate(command); });
}

static void addChat(CLI::App &app, ChatCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "chat", "Chat with the model, one line per turn; Ctrl-C stops an answer");
  addFile(sub, command.file);
  addNumber(sub, "-n,--count", command.count, "Maximum tokens of an answer", 0,
            kMost);
  addSampling(sub, command.sampling);
  // A function, because CLI11 would fill a bound optional without a flag too.
  sub->add_flag_function(
      "--think,!--no-think",
      [&command](int64_t count) { command.thinking = count > 0; },
      "Set enable_thinking of the chat template to true or false");
  sub->add_flag("--allow-special", command.allowSpecial,
                "Read special tokens in the text of messages");
  addSnapshots(sub, command.snapshots);
  addRun(sub, command);
  sub->callback([&command] { chat(command); });
}

/// Adds an option of ServerOptions.def.
template <typename T>
static void addServerOption(CLI::App *app, const std::string &name, T &to,
                            const char *unit, [[maybe_unused]] double least,
                            [[maybe_unused]] double most,
                            const std::string &help) {
  if constexpr (std::is_same_v<T, bool>) {
    app->add_flag(name, to, help);
  } else if constexpr (std::is_arithmetic_v<T>) {
    const std::string range =
        "; " + CLI::detail::to_string(static_cast<T>(least)) + " to " +
        CLI::detail::to_string(static_cast<T>(most));
    CLI::Option *option = addNumber(app, name, to, help + range,
                                    static_cast<T>(least), static_cast<T>(most))
                              ->type_name(unit);
    if (to >= least)
      option->default_str(CLI::detail::to_string(to));
  } else {
    CLI::Option *option = app->add_option(name, to, help)->type_name(unit);
    if constexpr (std::is_same_v<T, std::string>)
      option->default_str(to);
    else
      option->delimiter(',')->allow_extra_args(false);
  }
}

/// "--kv-pages" as QWEN_RUN_KV_PAGES.
static std::string variableOf(const std::string &name) {
  std::string variable = "QWEN_RUN_";
  for (char c : name)
    variable += c == '-' ? '_' : static_cast<char>(toupper(c));
  return variable;
}

/// Reads lines "option = value" and "# comment", for options that have no value
/// yet. Throws Error for a line that is none of these.
static void readConfig(CLI::App &app, const std::string &file) {
  constexpr uint64_t kMostBytes = 65536;
  std::istringstream lines(
      readFile(file, kMostBytes, "a file of options is short"));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = CLI::detail::trim_copy(line);
    if (line.empty() || line.starts_with('#'))
      continue;
    const size_t equals = line.find('=');
    const std::string name = CLI::detail::trim_copy(line.substr(0, equals));
    CLI::Option *const option = app.get_option_no_throw("--" + name);
    if (equals == std::string::npos || !option || option->get_envname().empty())
      throw Error(
          file + " line " + std::to_string(number) + ": " + quote(line) +
          " is not \"option = value\" with an option of " + app.get_name());
    const std::string value = CLI::detail::trim_copy(line.substr(equals + 1));
    if (option->count() == 0 && !value.empty())
      option->add_result(value);
  }
}

/// Adds --config before the other options: CLI11 runs callbacks in this order,
/// after it has read the environment.
static void addConfig(CLI::App *app) {
  app->add_option_function<std::vector<std::string>>(
         "--config",
         [app](const std::vector<std::string> &files) {
           for (const std::string &file : files)
             readConfig(*app, file);
         },
         "File with lines \"option = value\"")
      ->allow_extra_args(false);
  app->footer("An option has the value of the command line, else that of its "
              "variable (Env),\nelse that of the file of --config.");
}

/// Gives each option but --config a variable of the environment.
static void addVariables(CLI::App *app) {
  for (CLI::Option *option : app->get_options())
    if (option->nonpositional() && option != app->get_help_ptr() &&
        option->get_single_name() != "config")
      option->envname(variableOf(option->get_single_name()));
}

static void addServe(CLI::App &app, ServeCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "serve", "Answer HTTP requests as OpenAI's API does, until SIGTERM");
  addFile(sub, command.file);
  addConfig(sub);
#define QWEN_SERVER_OPTION(Type, Field, Name, Default, Unit, Least, Most,      \
                           Help)                                               \
  addServerOption(sub, "--" Name, command.server.Field, Unit, Least, Most,     \
                  Help);
#include "server/ServerOptions.def"
  CLI::Option *certificate = sub->get_option("--tls-cert");
  certificate->needs(sub->get_option("--tls-key")->needs(certificate));
  addSnapshots(sub, command.snapshots);
  addRun(sub, command);
  addVariables(sub);
  sub->callback([&command] { serve(command); });
}

static void addBench(CLI::App &app, BenchCommand &command) {
  CLI::App *sub = app.add_subcommand("bench", "Measure speed and memory");
  addFile(sub, command.file);
  addNumber(sub, "--prompt-tokens", command.prompt, "Tokens of the prompt", 1,
            kMost)
      ->default_str(std::to_string(command.prompt));
  addNumber(sub, "-n,--count", command.count, "Tokens to decode", 1, kMost)
      ->default_str(std::to_string(command.count));
  CLI::Option *batch =
      addNumber(sub, "--batch", command.batch, "Sequences in a batch", 1, 1024)
          ->default_str(std::to_string(command.batch));
  CLI::Option *clients =
      sub->add_option("--clients", command.clients,
                      "Numbers of requests that a scheduler answers at once, "
                      "compared with --batch of as many")
          ->delimiter(',')
          ->check(CLI::Range(1, 1024))
          ->type_name("INT,...")
          ->excludes(batch);
  addNumber(sub, "--repetitions", command.repetitions, "Number of measurements",
            1, kMost)
      ->default_str(std::to_string(command.repetitions));
  addRun(sub, command);
  sub->add_flag("--json", command.json, "Print JSON");
  CLI::Option *profile = sub->add_flag(
      "--profile", command.profile,
      "Measure the time of each op in as many further runs, and compare it "
      "with the limits of this machine");
  profile->excludes(batch)->excludes(clients);
  sub->add_option("--svg", command.svg,
                  "File for a picture of the last profiled prefill and decode, "
                  "by thread (SVG)")
      ->needs(profile);
  sub->add_flag("--bandwidth", command.bandwidth,
                "Compare decoding with the memory bandwidth; runs no prompt")
      ->excludes(profile)
      ->excludes(clients)
      ->excludes(batch);
  sub->callback([&command] {
    if (command.bandwidth)
      bandwidth(command);
    else if (!command.clients.empty())
      benchClients(command);
    else
      bench(command);
  });
}

static void addInfo(CLI::App &app, InfoCommand &command) {
  CLI::App *sub = app.add_subcommand("info", "Describe a compiled model");
  addFile(sub, command.file);
  sub->add_flag("--json", command.json, "Print JSON");
  sub->add_flag("--check", command.check,
                "Read the whole file and compare it with its checksums");
  sub->callback([&command] { info(command); });
}

static void addVerify(CLI::App &app, VerifyCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "verify", "Compare every kernel with the reference, bit for bit");
  addFile(sub, command.file);
  sub->add_flag("--json", command.json, "Print JSON");
  sub->callback([&command] { verify(command); });
}

static void addTokenize(CLI::App &app, TokenizeCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "tokenize", "Convert text to token ids, or ids to text");
  addFile(sub, command.file);
  sub->add_option("-p,--prompt", command.text,
                  "Text (ids with --decode); default is standard input");
  sub->add_flag("--json", command.json,
                "Print {\"ids\": [...]}, or with --decode {\"text\": ...}; "
                "U+FFFD replaces bytes that are not UTF-8");
  sub->add_flag("--decode", command.decode, "Convert ids to text");
  sub->callback([&command] { tokenize(command); });
}

static void addLogits(CLI::App &app, LogitsCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "logits", "Write the logits of each token, f32 [T, V], for NumPy");
  addFile(sub, command.file);
  sub->add_option("--ids", command.ids,
                  "Token ids (1,2,3); repeat the option for each sequence of a "
                  "batch")
      ->required()
      ->allow_extra_args(false);
  sub->add_option("-o,--output", command.output, "File to write (.npy)")
      ->required();
  addRun(sub, command);
  addPiece(sub, command.piece);
  sub->callback([&command] { logits(command); });
}

static void addEmbed(CLI::App &app, EmbedCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "embed", "Turn texts into vectors of length 1, one text per line");
  addFile(sub, command.file);
  CLI::Option *texts = sub->add_option(
      "TEXT", command.files,
      "Files with a text in each line; default is standard input");
  CLI::Option *instruction = sub->add_option(
      "--instruction", command.instruction,
      "What the texts are queries for: each becomes \"Instruct: "
      "INSTRUCTION\", a newline and \"Query:TEXT\"");
  sub->add_option("--ids", command.ids,
                  "Token ids (1,2,3) in place of texts; repeat the option for "
                  "each prompt")
      ->allow_extra_args(false)
      ->excludes(texts)
      ->excludes(instruction);
  addNumber(sub, "--dim", command.dimensions,
            "Number of first values of a vector that are kept", 1, kMost);
  sub->add_option("-o,--output", command.output,
                  "File for the vectors, f32 [N, D], for NumPy (.npy); default "
                  "is a JSON object per line on standard output");
  addRun(sub, command);
  sub->callback([&command] { embed(command); });
}

static void addRerank(CLI::App &app, RerankCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "rerank", "Score documents, one per line, by how well they answer a "
                "query: from 0 to 1");
  addFile(sub, command.file);
  sub->add_option("DOCUMENTS", command.files,
                  "Files with a document in each line; default is standard "
                  "input");
  sub->add_option("-q,--query", command.query, "The query")->required();
  sub->add_option("--instruction", command.instruction, "What to look for")
      ->default_str(command.instruction);
  addRun(sub, command);
  sub->callback([&command] { rerank(command); });
}

static void addPerplexity(CLI::App &app, PerplexityCommand &command) {
  CLI::App *sub =
      app.add_subcommand("perplexity", "Compute the perplexity of a text");
  sub->footer(
      "Perplexity is exp(mean(-log p)) over the scored tokens. Windows slide\n"
      "over the text. A window scores the tokens that no earlier window has\n"
      "seen, except its own first token, which has no context there. If the\n"
      "stride is less than the window, every token but the first is scored.");
  addFile(sub, command.file);
  sub->add_option("TEXT", command.text, "Text file")->required();
  addNumber(sub, "--window", command.window,
            "Tokens in a window; default is the model's context", 2, kMost);
  addNumber(sub, "--stride", command.stride,
            "Tokens between the starts of two windows; default is the window, "
            "at most 512",
            1, kMost);
  addRun(sub, command);
  sub->add_flag("--json", command.json, "Print JSON");
  sub->callback([&command] { perplexity(command); });
}

static void addCompare(CLI::App &app, CompareCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "compare", "Compute how far a model's probabilities are from another's");
  sub->footer(
      "The text is cut into windows; a rest that is shorter is left out. Each\n"
      "window runs alone. Its rows after the skipped ones are scored, but for\n"
      "the last, which has no next token: with the defaults, this is the rule\n"
      "of llama.cpp's perplexity tool. The KL divergence of a row is the sum\n"
      "of p log(p / q) over all tokens: p is the reference's probability, q\n"
      "the model's.");
  sub->add_option("REFERENCE", command.file,
                  "Compiled model, such as one in f32")
      ->required();
  sub->add_option("FILE", command.model, "Compiled model to compare with it")
      ->required();
  sub->add_option("TEXT", command.text, "Text file")->required();
  addNumber(sub, "--window", command.window, "Tokens in a window", 2, kMost)
      ->default_str(std::to_string(command.window));
  addNumber(sub, "--skip", command.skip,
            "First tokens of a window whose rows are not scored; default is "
            "half of the window",
            0, kMost);
  addNumber(sub, "--windows", command.windows,
            "Maximum number of windows; default is the whole text", 1, kMost);
  addRun(sub, command);
  sub->add_flag("--json", command.json, "Print JSON");
  sub->callback([&command] { compare(command); });
}

// The code outside of `try` throws only if there is no memory for the options.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char **argv) {
  prepareProcess("qwen-run");
  CLI::App app("Runs models that qwen-opt compiled.", "qwen-run");
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       std::string("qwen-run ") + projectVersion());
  GenerateCommand generateCommand;
  ChatCommand chatCommand;
  ServeCommand serveCommand;
  BenchCommand benchCommand;
  InfoCommand infoCommand;
  VerifyCommand verifyCommand;
  TokenizeCommand tokenizeCommand;
  LogitsCommand logitsCommand;
  EmbedCommand embedCommand;
  RerankCommand rerankCommand;
  PerplexityCommand perplexityCommand;
  CompareCommand compareCommand;
  addGenerate(app, generateCommand);
  addChat(app, chatCommand);
  addServe(app, serveCommand);
  addBench(app, benchCommand);
  addInfo(app, infoCommand);
  addVerify(app, verifyCommand);
  addTokenize(app, tokenizeCommand);
  addLogits(app, logitsCommand);
  addEmbed(app, embedCommand);
  addRerank(app, rerankCommand);
  addPerplexity(app, perplexityCommand);
  addCompare(app, compareCommand);
  const auto fail = [](const std::string &message) {
    writeError("qwen-run: " + message + "\n");
    return 1;
  };
  try {
    parseCommandLine(app, argc, argv);
  } catch (const CLI::Success &request) {
    return app.exit(request);
  } catch (const UsageError &error) {
    fail(error.what());
    return 2;
  } catch (const std::bad_alloc &) {
    return fail("out of memory" + addressSpaceLimit());
  } catch (const std::exception &error) {
    return fail(error.what());
  }
  return 0;
}
