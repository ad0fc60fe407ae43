//===- Serve.cpp - Answers HTTP requests ----------------------------------===//

#include "CommandTree.h"
#include "Commands.h"
#include "Output.h"
#include "ServiceFlags.h"
#include "server/Service.h"
#include "server/http/Access.h"
#include "server/http/HttpServer.h"

#include "qwen/Support/Text.h"

#include <csignal>
#include <cstdlib>
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

static void serve(const ServiceFlags &command) {
  const server::ServerOptions &chosen = command.server;
  const std::vector<std::string> keys = readKeys(chosen.keyFile);
  // Whoever reads the log may end before the server does.
  signal(SIGPIPE, SIG_IGN);
  LogLines log(STDERR_FILENO);
  server::HttpServer http(chosen, keys,
                          [&](const std::string &line) { log.write(line); });
  Model model = command.openModel();
  SchedulerOptions options = command.schedulerOptions();
  options.onStep = [&http] { http.wake(); };
  command.startEngine(model);
  server::Service service(model, options, chosen, !keys.empty());
  http.run(service, [&] {
    log.write("qwen-run: " + printable(service.model()) + " answers on " +
              http.address());
  });
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
      ->type_name(kFileType)
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

void qwen::run::addServe(CLI::App &app) {
  const auto command = std::make_shared<ServiceFlags>();
  CLI::App *sub = app.add_subcommand(
      "serve", "Answer HTTP requests as OpenAI's API does, until SIGTERM");
  addFile(sub, command->file);
  addConfig(sub);
#define QWEN_SERVER_OPTION(Type, Field, Name, Default, Unit, Least, Most,      \
                           Help)                                               \
  addServerOption(sub, "--" Name, command->server.Field, Unit, Least, Most,    \
                  Help);
#include "server/ServerOptions.def"
  CLI::Option *certificate = sub->get_option("--tls-cert");
  certificate->needs(sub->get_option("--tls-key")->needs(certificate));
  addSnapshots(sub, command->snapshots);
  addRun(sub, *command);
  addVariables(sub);
  sub->callback([command] { serve(*command); });
}
