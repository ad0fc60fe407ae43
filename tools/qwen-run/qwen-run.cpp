//===- qwen-run.cpp - Runs compiled models --------------------------------===//

#include "CommandLine.h"
#include "Commands.h"
#include "Output.h"
#include "artifact/File.h"

#include "qwen/ABI/Error.h"
#include "qwen/ABI/Process.h"
#include "qwen/ABI/Version.h"

#include <new>

using namespace qwen;
using namespace qwen::run;

static constexpr int64_t kMost = INT32_MAX;

static void addFile(CLI::App *app, std::string &file) {
  app->add_option("FILE", file, "Compiled model")->required();
}

static CLI::Option *addThreads(CLI::App *app, int32_t &threads) {
  return addNumber(
      app, "-t,--threads", threads,
      "Threads; one for each physical performance core by default, "
      "at most one for each physical core",
      1, ThreadPool::kMaxThreads);
}

static void addLock(CLI::App *app, bool &lock) {
  app->add_flag("--lock", lock,
                "Keep the weights in memory, whatever else needs it");
}

static void addCheck(CLI::App *app, WeightCheck &check) {
  app->add_option_function<std::string>(
         "--check",
         [&check](const std::string &when) {
           check = when == "now"   ? WeightCheck::Now
                   : when == "off" ? WeightCheck::Off
                                   : WeightCheck::Background;
         },
         std::string("Look for damaged weights while the model runs, before, "
                     "or not; ") +
             (check == WeightCheck::Off ? "off" : "background") + " by default")
      ->check(CLI::IsMember({"background", "now", "off"}));
}

static void addPiece(CLI::App *app, int64_t &piece) {
  addNumber(app, "--piece", piece,
            "Tokens in one call at most; the result does not depend on it", 1,
            kMost);
}

static void addSampling(CLI::App *app, SamplingFlags &flags) {
  // The sampler checks the ranges of numbers that are not whole.
  constexpr float kFloats = std::numeric_limits<float>::max();
  constexpr double kDoubles = std::numeric_limits<double>::max();
  addNumber(app, "--temperature", flags.temperature,
            "0 always takes the most likely token", -kFloats);
  addNumber(app, "--top-k", flags.topK, "Tokens kept; 0 keeps all", 0);
  addNumber(app, "--top-p", flags.topP, "Share of the probability kept",
            -kDoubles);
  addNumber(app, "--min-p", flags.minP,
            "Least probability kept, as a share of the greatest", -kDoubles);
  addNumber(app, "--repetition-penalty", flags.repetitionPenalty,
            "Penalty for tokens already seen; 1 disables it", -kFloats);
  addNumber(app, "--seed", flags.seed, "Seed of the draws; 0 by default", 0);
}

static void addGenerate(CLI::App &app, GenerateCommand &command) {
  CLI::App *sub = app.add_subcommand("generate", "Continue a text");
  addFile(sub, command.file);
  CLI::Option *prompt = sub->add_option("-p,--prompt", command.prompt,
                                        "Text; standard input by default");
  sub->add_option("--ids", command.ids,
                  "Token ids for the text (1,2,3); ids are printed")
      ->excludes(prompt);
  addNumber(sub, "-n,--count", command.count,
            "Tokens at most; up to the model's context by default", 0, kMost);
  addSampling(sub, command.sampling);
  sub->add_flag("--ignore-eos", command.ignoreEos,
                "Go on where the model would end");
  addThreads(sub, command.threads);
  addCheck(sub, command.check);
  addLock(sub, command.lock);
  addPiece(sub, command.piece);
  sub->callback([&command] { generate(command); });
}

static void addChat(CLI::App &app, ChatCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "chat", "Talk, one line a turn; Ctrl-C stops an answer");
  addFile(sub, command.file);
  addNumber(sub, "-n,--count", command.count, "Tokens of an answer at most", 0,
            kMost);
  addSampling(sub, command.sampling);
  // Not bound to the optional itself: CLI11 would fill it where no flag is.
  sub->add_flag_function(
      "--think,!--no-think",
      [&command](int64_t count) { command.thinking = count > 0; },
      "Switch the template's thinking on or off");
  addThreads(sub, command.threads);
  addCheck(sub, command.check);
  addLock(sub, command.lock);
  sub->callback([&command] { chat(command); });
}

static void addBench(CLI::App &app, BenchCommand &command) {
  CLI::App *sub = app.add_subcommand("bench", "Measure speed and memory");
  addFile(sub, command.file);
  addNumber(sub, "--prompt-tokens", command.prompt, "Tokens of the prompt", 1,
            kMost)
      ->default_str(std::to_string(command.prompt));
  addNumber(sub, "-n,--count", command.count, "Tokens decoded", 1, kMost)
      ->default_str(std::to_string(command.count));
  CLI::Option *batch = addNumber(sub, "--batch", command.batch,
                                 "Sequences that run together", 1, 1024)
                           ->default_str(std::to_string(command.batch));
  addNumber(sub, "--repetitions", command.repetitions, "Measurements", 1, kMost)
      ->default_str(std::to_string(command.repetitions));
  addThreads(sub, command.threads);
  addCheck(sub, command.check);
  addLock(sub, command.lock);
  sub->add_flag("--json", command.json, "Print JSON");
  CLI::Option *profile = sub->add_flag(
      "--profile", command.profile,
      "Measure as often again with the time of each op, beside the limits of "
      "this machine");
  profile->excludes(batch);
  sub->add_option("--svg", command.svg,
                  "Draw the last profiled prefill and decode step by thread")
      ->needs(profile);
  sub->add_flag("--bandwidth", command.bandwidth,
                "Compare decoding with how fast memory is read; no prompt")
      ->excludes(profile)
      ->excludes(batch);
  sub->callback([&command] {
    if (command.bandwidth)
      bandwidth(command);
    else
      bench(command);
  });
}

static void addInfo(CLI::App &app, InfoCommand &command) {
  CLI::App *sub = app.add_subcommand("info", "Say what is in a file");
  addFile(sub, command.file);
  sub->add_flag("--json", command.json, "Print JSON");
  sub->add_flag("--verify", command.verify,
                "Read all of it and check the checksums");
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
  CLI::App *sub = app.add_subcommand("tokenize", "Text to token ids, or back");
  addFile(sub, command.file);
  sub->add_option("-p,--prompt", command.text,
                  "Text (ids with --decode); standard input by default");
  sub->add_flag("--json", command.json,
                "Print {\"ids\": [...]}; with --decode {\"text\": ...}, where "
                "bytes that are no UTF-8 become U+FFFD");
  sub->add_flag("--decode", command.decode, "Ids to text");
  sub->callback([&command] { tokenize(command); });
}

static void addLogits(CLI::App &app, LogitsCommand &command) {
  CLI::App *sub = app.add_subcommand(
      "logits", "Write the logits at each token, f32 [T, V], for NumPy");
  addFile(sub, command.file);
  sub->add_option("--ids", command.ids,
                  "Token ids: 1,2,3; once for each sequence of a batch")
      ->required()
      ->allow_extra_args(false);
  sub->add_option("-o,--output", command.output, "File to write (.npy)")
      ->required();
  addThreads(sub, command.threads)
      ->description(
          "Threads, also more than there are cores: no result depends "
          "on them");
  addCheck(sub, command.check);
  addPiece(sub, command.piece);
  sub->callback([&command] { logits(command); });
}

static void addPerplexity(CLI::App &app, PerplexityCommand &command) {
  CLI::App *sub =
      app.add_subcommand("perplexity", "Compute the perplexity of a text");
  sub->footer(
      "The perplexity is exp of the mean of -log p over the scored tokens. A\n"
      "window scores its tokens that no earlier window had, without its first\n"
      "token, which has no context in the window. Where the stride is less\n"
      "than the window, all tokens of the text but the first are scored.");
  addFile(sub, command.file);
  sub->add_option("TEXT", command.text, "Text file")->required();
  addNumber(sub, "--window", command.window,
            "Tokens seen at once; the model's context by default", 2, kMost);
  addNumber(sub, "--stride", command.stride,
            "Tokens from one window to the next; the window, at most 512, by "
            "default",
            1, kMost);
  addThreads(sub, command.threads);
  addCheck(sub, command.check);
  sub->add_flag("--json", command.json, "Print JSON");
  sub->callback([&command] { perplexity(command); });
}

// What is outside of `try` fails only where there is no memory for options.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char **argv) {
  prepareProcess("qwen-run");
  CLI::App app("Runs models that qwen-opt compiled.", "qwen-run");
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       std::string("qwen-run ") + projectVersion());
  GenerateCommand generateCommand;
  ChatCommand chatCommand;
  BenchCommand benchCommand;
  InfoCommand infoCommand;
  VerifyCommand verifyCommand;
  TokenizeCommand tokenizeCommand;
  LogitsCommand logitsCommand;
  PerplexityCommand perplexityCommand;
  addGenerate(app, generateCommand);
  addChat(app, chatCommand);
  addBench(app, benchCommand);
  addInfo(app, infoCommand);
  addVerify(app, verifyCommand);
  addTokenize(app, tokenizeCommand);
  addLogits(app, logitsCommand);
  addPerplexity(app, perplexityCommand);
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
