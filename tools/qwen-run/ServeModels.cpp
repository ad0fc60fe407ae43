//===- ServeModels.cpp - Answers requests to several models ---------------===//

#include "ServeModels.h"

#include "CommandTree.h"
#include "cache/CompiledModel.h"
#include "chat/Screen.h"
#include "engine/drafters/Drafters.h"
#include "server/ModelRouter.h"

#include "qwen/Support/Text.h"

#include <algorithm>
#include <utility>

using namespace qwen;
using namespace qwen::run;

namespace {

/// What the models of a process share.
struct Shared {
  const ServiceFlags &command;
  const std::shared_ptr<ThreadPool> threads;
  const SchedulerOptions scheduling;
  const ServerParts &parts;
};

/// A model of the list with its names, and its file while it is prepared.
struct Listed {
  ListedModel model;
  std::vector<std::string> names;
  std::unique_ptr<Model> opened = {};
  /// They outlive the loaded model.
  std::shared_ptr<server::Metrics> metrics =
      std::make_shared<server::Metrics>();
};

/// An engine with its service.
class EngineModel final : public server::ServedModel {
public:
  /// Takes the opened file.
  EngineModel(const Shared &shared, Listed &listed);
  ~EngineModel() override;
  EngineModel(const EngineModel &) = delete;
  EngineModel &operator=(const EngineModel &) = delete;

  uint64_t bytes() const override { return engine->memoryBytes(); }
  server::Service &service() override { return *answers; }

private:
  const LogLineFn log;
  const std::unique_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::optional<server::Service> answers;
};

} // namespace

/// The options of the service of one model.
static server::ServerOptions optionsOf(const Shared &shared,
                                       const std::vector<std::string> &names) {
  server::ServerOptions options = shared.command.server;
  options.names = names;
  return options;
}

EngineModel::EngineModel(const Shared &shared, Listed &listed)
    : log(shared.parts.log), model(std::move(listed.opened)),
      engine(makeEngine(*model, shared.threads, shared.parts.budget,
                        shared.command.engineOptions(*model))) {
  if (const std::string why = whyNoDrafts(*engine); !why.empty())
    log(printable(model->path()) + " gets no drafts: " + why);
  answers.emplace(*model, *engine, shared.scheduling,
                  optionsOf(shared, listed.names), shared.parts.keyNames,
                  std::span<const std::unique_ptr<Engine>>(), listed.metrics);
}

EngineModel::~EngineModel() {
  answers.reset();
  try {
    // Damage that requests have met.
    engine->finishCheck([] { return true; });
  } catch (const std::exception &error) {
    log(printable(error.what()));
  }
}

/// Opens the compiled file, which it may have to make. Returns the bytes that
/// the engine needs.
static uint64_t prepare(const Shared &shared, Listed &listed,
                        const LoadProgressFn &tell) {
  const ModelSource source = listed.model.source();
  std::string file = source.path.string();
  try {
    if (!source.isCompiled) {
      tell({.stage = "looks for its compiled file"});
      file = compiledModel(
          file, shared.command.file.compile().arguments, FilePlace::Anywhere,
          [&](const std::string &stage, uint64_t done, uint64_t total) {
            tell({.stage = stage, .done = done, .total = total});
          });
    }
    tell({.stage = "opens " + file});
    listed.opened = std::make_unique<Model>(
        file, readTemplate(shared.command.server.chatTemplate));
    return leastMemory(listed.opened->artifact(),
                       shared.command.forService(shared.command.engine));
  } catch (const Error &error) {
    doubtCachedModels(error.what());
    throw;
  }
}

/// Says what would be compiled of the models, and ends the command.
[[noreturn]] static void
describeCompiles(const std::vector<ListedModel> &models,
                 const std::vector<CompileArgument> &arguments) {
  for (const ListedModel &model : models) {
    const bool isCompiled = model.source().isCompiled;
    writeOut(screenText(describeCompile(
        model.given, isCompiled ? std::vector<CompileArgument>() : arguments)));
  }
  throw CommandDone();
}

std::vector<ListedModel>
qwen::run::modelsOf(const ServiceFlags &command,
                    const std::vector<std::string> &more,
                    const LogLineFn &log) {
  std::vector<ListedModel> models;
  if (!command.file.name().empty())
    models.push_back(listModel(command.file.name()));
  for (const std::string &given : more)
    models.push_back(listModel(given));
  if (const std::string &folder = command.server.modelsDir; !folder.empty()) {
    std::ranges::move(listModels(folder, log), std::back_inserter(models));
    if (models.empty())
      throw Error(part::file(folder) +
                  " has no model: a compiled file, a GGUF file or a "
                  "checkpoint folder is needed");
  }
  if (command.file.compile().dryRun)
    describeCompiles(models, command.file.compile().arguments);
  return models;
}

static std::string someNames(const std::vector<ListedModel> &models) {
  std::vector<server::RoutedModel> named;
  named.reserve(models.size());
  for (const ListedModel &model : models)
    named.push_back({{model.name}});
  return server::someNames(named);
}

/// The models with their names: their own and the names of --name. Throws
/// Error.
static std::vector<Listed>
namedModels(const std::vector<ListedModel> &models,
            const std::vector<std::string> &aliases) {
  std::vector<Listed> all;
  all.reserve(models.size());
  for (const ListedModel &model : models)
    all.push_back({model, {model.name}});
  for (const std::string &alias : aliases) {
    const size_t equals = alias.find('=');
    const std::string name =
        equals == alias.npos ? "" : alias.substr(equals + 1);
    const auto named = std::ranges::find_if(
        all, [&](const Listed &each) { return each.model.name == name; });
    if (equals == 0 || named == all.end())
      throw Error("--name " + quote(alias) +
                  " must be ALIAS=MODEL when there are several models, which "
                  "are " +
                  someNames(models));
    named->names.push_back(alias.substr(0, equals));
  }
  return all;
}

/// The tokens of the context of a compiled file. Throws Error for a file of the
/// command line that is none.
static std::optional<int64_t> contextOf(const ListedModel &model) {
  const ModelSource source = model.source();
  if (!source.isCompiled)
    return std::nullopt;
  try {
    return Artifact(source.path.string()).manifest().model.context;
  } catch (const Error &) {
    if (model.folder.empty())
      throw;
    // A request gets the error.
    return std::nullopt;
  }
}

static ModelPoolOptions poolOptions(const server::ServerOptions &chosen,
                                    const LogLineFn &log) {
  ModelPoolOptions options = {
      .queue = static_cast<size_t>(chosen.queue),
      .log = [&log](const std::string &line) { log("model " + line); }};
  if (chosen.modelIdle > 0)
    options.idle = server::milliseconds(chosen.modelIdle);
  return options;
}

void qwen::run::serveModels(const ServiceFlags &command,
                            const std::vector<ListedModel> &models,
                            const ServerParts &parts,
                            const std::function<void()> &onReady) {
  if (!command.draftModel.empty())
    throw Error("--speculate " + command.draftModel +
                " drafts for one model, and there are several; give a word "
                "such as auto");
  if (command.groups.count != 1)
    throw Error("--replicas runs one model on several groups of cores, and "
                "there are several models");
  SchedulerOptions scheduling = command.schedulerOptions();
  scheduling.batcher.store = parts.store;
  scheduling.onStep = [&parts] { parts.http.wake(); };
  const Shared shared = {command, command.pool(), scheduling, parts};
  std::vector<Listed> listed = namedModels(models, command.server.names);
  std::vector<server::RoutedModel> routed;
  std::vector<PoolModel> pooled;
  for (Listed &each : listed) {
    routed.push_back({each.names, contextOf(each.model)});
    pooled.push_back(
        {.name = printable(each.model.name),
         .prepare =
             [&](const LoadProgressFn &tell) {
               return prepare(shared, each, tell);
             },
         .load = [&] { return std::make_unique<EngineModel>(shared, each); }});
  }
  ModelPool pool(std::move(pooled), parts.budget,
                 poolOptions(command.server, parts.log));
  server::ModelRouter router(std::move(routed), pool, command.server,
                             !parts.keyNames.empty(), scheduling.onStep,
                             parts.store);
  for (const std::string &name : command.server.preload)
    router.load(router.find(name));
  parts.http.run(router, onReady);
}
