//===- RunCompiler.cpp - qwen-opt as a process ----------------------------===//

#include "cache/RunCompiler.h"

#include "CompilerProgram.h"
#include "ExitCodes.h"
#include "Output.h"
#include "ProgressBar.h"
#include "cache/CacheFolder.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"
#include "qwen/Support/Version.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;

std::string qwen::run::shellLine(const std::vector<std::string> &words) {
  std::string line;
  for (const std::string &word : words) {
    const bool plain =
        !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
          return std::isalnum(c) || strchr("-_=./,:+@%", c);
        });
    line += line.empty() ? "" : " ";
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (char c : word)
      line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

namespace {
/// Shows the progress and the warnings of the compiler, and keeps its error.
class CompilerOutput {
public:
  /// A function gets the progress in place of a bar.
  explicit CompilerOutput(const CompileProgressFn &function)
      : function(function) {}

  /// A line of JSON; anything else is a message.
  void progress(std::string_view line) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    try {
      const std::string stage = json.at("stage");
      const uint64_t done = json.at("done"), total = json.at("total");
      if (function)
        return function(stage, done, total);
      if (stage != shown)
        bar.emplace(shown = stage);
      bar->update(done, total);
    } catch (const nlohmann::json::exception &) {
      message(std::string(line));
    }
  }

  /// A line of standard error: a warning or a note is shown, another one may
  /// be the reason of a failure.
  void message(const std::string &line) {
    const std::string_view kName = "qwen-opt: ";
    const bool ours = line.starts_with(kName);
    const std::string text = ours ? line.substr(kName.size()) : line;
    if (ours && (text.starts_with("warning: ") || text.starts_with("note: "))) {
      bar.reset();
      shown.clear();
      writeError("qwen-run: " + text + "\n");
    } else if (!text.empty() && (ours || !lastIsOurs)) {
      last = text;
      lastIsOurs = ours;
    }
  }

  void end() { bar.reset(); }
  const std::string &reason() const { return last; }

private:
  const CompileProgressFn &function;
  std::optional<ProgressBar> bar;
  std::string shown, last;
  bool lastIsOurs = false;
};

/// Files that are made meanwhile, also by programs that run, are private.
class PrivateFiles {
public:
  PrivateFiles() : mask(umask(S_IRWXG | S_IRWXO)) {}
  ~PrivateFiles() { umask(mask); }
  PrivateFiles(const PrivateFiles &) = delete;
  PrivateFiles &operator=(const PrivateFiles &) = delete;

private:
  const mode_t mask;
};
} // namespace

/// Throws Error if the compiler is of another version than this program, which
/// may not read what it writes.
static void requireOwnVersion(const std::string &compiler) {
  const std::string_view kName = "qwen-opt ";
  std::string version;
  runProgram(compiler, {"--version"},
             {[&](std::string_view line) {
                if (line.starts_with(kName))
                  version = line.substr(kName.size());
              },
              [](std::string_view) {}});
  if (!version.empty() && version != projectVersion())
    throw Error(part::file(compiler) + " has version " +
                part::found(printable(version)) + " when this qwen-run has " +
                part::needed(projectVersion()) +
                "; install both of one version");
}

void qwen::run::runCompiler(const std::string &compiler,
                            std::vector<std::string> arguments, int lock,
                            const CompileProgressFn &progress) {
  requireOwnVersion(compiler);
  arguments.push_back("--progress=" + std::to_string(STDOUT_FILENO));
  CompilerOutput output(progress);
  int status = 0;
  {
    const PrivateFiles mask;
    // A copy, which exec does not close.
    const CacheLock inherited(lock < 0 ? -1 : dup(lock));
    status = runProgram(
        compiler, arguments,
        {[&](std::string_view line) { output.progress(line); },
         [&](std::string_view line) { output.message(std::string(line)); }});
  }
  output.end();
  constexpr int kSignal = 128;
  if (status == 0)
    return;
  if (status > kSignal)
    throw Error(
        part::file(compiler) + " was ended by signal " +
        part::found(status - kSignal) +
        (status - kSignal == SIGKILL ? ", perhaps for want of memory" : ""));
  if (!output.reason().empty())
    throw ProgramError(output.reason(), status);
  throw Error(part::file(compiler) + " ended with status " +
              part::found(status));
}

std::optional<uint64_t> qwen::run::neededMemory(const std::string &compiler,
                                                const std::string &checkpoint,
                                                const std::string &weights) {
  std::string text;
  // With a bandwidth, it measures none.
  const int status = runProgram(
      compiler, {"info", "--json", "--gbps=1", "--", checkpoint},
      {[&](std::string_view line) { text.append(line).append("\n"); },
       [](std::string_view) {}});
  if (status != 0)
    return std::nullopt;
  try {
    const nlohmann::json facts = nlohmann::json::parse(text);
    const nlohmann::json &compiled = facts.at("compiled");
    uint64_t bytes = compiled.at("weight_bytes");
    for (const nlohmann::json &row : facts.at("formats"))
      if (row.at("format") == weights)
        bytes = row.at("weight_bytes");
    return bytes + compiled.at("arena_bytes").get<uint64_t>();
  } catch (const nlohmann::json::exception &) {
    return std::nullopt;
  }
}
