//===- Serve.cpp - Answers HTTP requests ----------------------------------===//

#include "CommandTree.h"
#include "Commands.h"
#include "Output.h"
#include "ServeModels.h"
#include "server/Service.h"
#include "server/events/KvEvents.h"
#include "server/events/ZmqSockets.h"
#include "server/http/Access.h"
#include "server/http/HttpServer.h"
#include "store/DiskStore.h"

#include "qwen/Support/Text.h"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <sstream>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;

static std::vector<std::string> readKeys(const std::string &file) {
  constexpr uint64_t kMostBytes = 65536;
  constexpr char kVariable[] = "QWEN_RUN_API_KEY";
  std::vector<std::string> keys;
  if (!file.empty())
    keys = server::keysOf(
        readFile(file, kMostBytes, "a file of API keys is short"), file);
  if (const char *key = getenv(kVariable); key && *key) {
    server::requireKey(key, kVariable);
    keys.emplace_back(key);
  }
  return keys;
}

namespace {
/// Its end blocks the signals that end a server, for the rest of the process:
/// one that comes when all work is done must not change the exit status.
struct LateSignalsBlocked {
  LateSignalsBlocked() = default;
  LateSignalsBlocked(const LateSignalsBlocked &) = delete;
  LateSignalsBlocked &operator=(const LateSignalsBlocked &) = delete;
  ~LateSignalsBlocked() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }
};
} // namespace

/// A line for each engine of several.
static void logGroups(std::span<const std::unique_ptr<Engine>> engines,
                      const LogLineFn &log) {
  for (size_t i = 0; engines.size() > 1 && i < engines.size(); ++i)
    log("qwen-run: engine " + std::to_string(i) + " runs on " +
        engines[i]->describeThreads());
}

/// The prompt cache on disk, or null if there is none.
static std::unique_ptr<DiskStore> openStore(const server::ServerOptions &chosen,
                                            MemoryBudget &budget,
                                            const DiskStore::LogFn &log) {
  if (chosen.cacheFolder.empty())
    return nullptr;
  if (chosen.noPrefixCache)
    throw Error("--cache-dir excludes --no-prefix-cache");
  return std::make_unique<DiskStore>(chosen.cacheFolder,
                                     static_cast<uint64_t>(chosen.cacheBytes),
                                     budget, log);
}

/// What roots call the API keys: their places or, where names last longer than
/// the process, digests.
static std::vector<std::string>
namesOfKeys(const std::vector<std::string> &keys, const DiskStore *store) {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const std::string &key : keys)
    names.push_back(store ? store->nameOfKey(key)
                          : std::to_string(names.size()));
  return names;
}

namespace {
struct ServeCommand : ServiceFlags {
  /// Further models of the command line.
  std::vector<std::string> more;

  /// Whether models are loaded on demand.
  bool hasSeveral() const {
    return !more.empty() || !server.modelsDir.empty() || server.modelIdle > 0 ||
           !server.preload.empty();
  }
};
} // namespace

/// Publishes which prompts are cached, or is null.
static std::unique_ptr<server::KvEvents> openEvents(const ServeCommand &command,
                                                    const LogLineFn &log) {
  const server::ServerOptions &chosen = command.server;
  if (chosen.kvEvents.empty())
    return nullptr;
  if (chosen.noPrefixCache)
    throw Error("--kv-events excludes --no-prefix-cache");
  if (command.hasSeveral())
    throw Error("--kv-events is for one model, which a server of several "
                "models does not have");
  return std::make_unique<server::KvEvents>(server::openZmqSockets(
      chosen, [&](const std::string &line) { log("qwen-run: " + line); }));
}

/// Serves one model, which is loaded before the first request.
static void serveOne(const ServeCommand &command, const ServerParts &parts,
                     const std::function<void(const std::string &)> &onReady) {
  Model model = command.openModel();
  SchedulerOptions options = command.schedulerOptions();
  options.batcher.store = parts.store;
  options.batcher.events = parts.events;
  options.onStep = [&parts] { parts.http.wake(); };
  const EngineGroups groups = command.startEngines(model, parts.budget);
  const std::span engines = groups.engines();
  server::Service service(model, *engines.front(), options, command.server,
                          parts.keyNames, engines.subspan(1));
  parts.http.run(service, [&] {
    onReady(service.model());
    logGroups(engines, parts.log);
  });
  // Damage that requests have met is the error of this program, too.
  engines.front()->finishCheck([] { return true; });
}

static void serve(const ServeCommand &command) {
  const server::ServerOptions &chosen = command.server;
  const std::vector<std::string> keys = readKeys(chosen.keyFile);
  // Whoever reads the log may end before the server does.
  signal(SIGPIPE, SIG_IGN);
  LogLines lines(STDERR_FILENO);
  std::mutex mutex;
  const LogLineFn log = [&](const std::string &line) {
    const std::lock_guard lock(mutex);
    lines.write(line);
  };
  server::HttpServer http(chosen, keys, log);
  // Before the server gives up its handlers, and after all else has ended.
  const LateSignalsBlocked late;
  const auto onReady = [&](const std::string &name) {
    log("qwen-run: " + printable(name) + " answers on " + http.address());
  };
  const std::shared_ptr<MemoryBudget> budget = command.budget();
  if (command.hasSeveral())
    budget->countWeights();
  const std::unique_ptr<DiskStore> store = openStore(chosen, *budget, log);
  const auto events = openEvents(command, log);
  const ServerParts parts = {http,         namesOfKeys(keys, store.get()),
                             budget,       store.get(),
                             events.get(), log};
  if (!command.hasSeveral())
    return serveOne(command, parts, onReady);
  const std::vector<ListedModel> models = modelsOf(command, command.more, log);
  serveModels(command, models, parts, [&] {
    onReady(models.size() == 1 ? models.front().name
                               : std::to_string(models.size()) + " models");
  });
}

/// "--kv-pages" as QWEN_RUN_KV_PAGES.
static std::string variableOf(const std::string &name) {
  std::string variable = "QWEN_RUN_";
  for (char c : name)
    variable += c == '-' ? '_' : static_cast<char>(toupper(c));
  return variable;
}

/// Without spaces at its ends.
static std::string withoutSpaces(std::string_view text) {
  return std::string(trimmed(text, " \t\r\n\v\f"));
}

/// Reads lines "option = value" and "# comment", for options that have no value
/// yet. Throws Error for a line that is none of these.
static void readConfig(const Command &command, const std::string &file) {
  constexpr uint64_t kMostBytes = 65536;
  std::istringstream lines(
      readFile(file, kMostBytes, "a file of options is short"));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = withoutSpaces(line);
    if (line.empty() || line.starts_with('#'))
      continue;
    const size_t equals = line.find('=');
    const std::string name = withoutSpaces(line.substr(0, equals));
    const std::optional<Option> option = command.findOption("--" + name);
    if (equals == std::string::npos || !option ||
        option->info().variable.empty())
      throw Error(
          file + " line " + std::to_string(number) + ": " + quote(line) +
          " is not \"option = value\" with an option of " + command.name());
    const std::string value = withoutSpaces(line.substr(equals + 1));
    if (!option->isGiven() && !value.empty())
      option->give(value);
  }
}

/// Adds --config before the other options: their values are set in this order,
/// after the environment is read.
static void addConfig(const Command &command) {
  command
      .addTexts(
          "--config",
          [command](const std::vector<std::string> &files) {
            for (const std::string &file : files)
              readConfig(command, file);
          },
          "File with lines \"option = value\"; default is none")
      .type(kFileType)
      .repeatable();
  command.footer(
      "An option has the value of the command line, else that of its "
      "variable (Env),\nelse that of the file of --config.");
}

/// Gives each option but --config a variable of the environment.
static void addVariables(const Command &command) {
  for (const Option &option : command.options())
    if (const std::string name = option.name();
        name.starts_with("--") && name != "--help" && name != "--config")
      option.variable(variableOf(name.substr(2)));
}

void qwen::run::addServe(const Command &program) {
  const auto command = std::make_shared<ServeCommand>();
  const Command sub = program.addCommand(
      "serve", "Answer HTTP requests as OpenAI's API does, until SIGTERM");
  // Not with --models-dir.
  addFile(sub, command->file).required(false);
  sub.addTexts("MODELS", command->more,
               "Further models, of which requests name one");
  addConfig(sub);
#define QWEN_SERVER_GROUP(Heading) sub.group(Heading);
#define QWEN_SERVER_OPTION(Type, Field, Name, Default, Unit, Least, Most,      \
                           Help)                                               \
  addTableOption(sub, "--" Name, command->server.Field, Unit, Least, Most,     \
                 Help);
#include "server/ServerOptions.def"
  for (const char *name :
       {"--kv-events-replay", "--kv-events-topic", "--kv-events-public"})
    sub.option(name).needs(sub.option("--kv-events"));
  const Option certificate = sub.option("--tls-cert");
  certificate.needs(sub.option("--tls-key").needs(certificate));
  addRun(sub, *command,
         {EnginePart::Sequences, EnginePart::Snapshots, EnginePart::Answers});
  addGroups(sub, command->groups);
  addVariables(sub);
  sub.onRun([sub, command] {
    if (command->file.name().empty() && command->server.modelsDir.empty())
      throw UsageError(sub, "MODEL is missing");
    serve(*command);
  });
}
