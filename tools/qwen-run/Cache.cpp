//===- Cache.cpp - The cache of compiled models ---------------------------===//

#include "Commands.h"
#include "JsonOutput.h"
#include "Options.h"
#include "Output.h"
#include "cache/CacheFolder.h"
#include "cache/CompiledModel.h"
#include "store/PageFile.h"
#include "store/PromptFolder.h"

#include "qwen/ABI/Blocks.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <ctime>
#include <map>

using namespace qwen;
using namespace qwen::run;

/// Throws Error if no variable gives a place.
static std::filesystem::path requirePath() {
  if (const auto path = cachePath())
    return *path;
  throw Error("there is no cache, because neither XDG_CACHE_HOME nor HOME is "
              "set");
}

/// The cache, or nothing if there is none yet.
static std::optional<CacheFolder> openCache() {
  std::string reason;
  std::optional<CacheFolder> folder =
      CacheFolder::open(requirePath(), false, reason);
  if (!folder && !reason.empty())
    throw Error("cannot use the cache " + part::found(reason));
  return folder;
}

/// "2026-11-26 07:00" in local time.
static std::string timeText(time_t time) {
  tm parts = {};
  char text[32] = "";
  if (localtime_r(&time, &parts))
    (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

static void list(bool json) {
  const std::optional<CacheFolder> folder = openCache();
  std::vector<JsonText> files;
  for (const CacheEntry &entry :
       folder ? folder->entries() : std::vector<CacheEntry>()) {
    const CacheRecord record =
        folder->record(entry.stem).value_or(CacheRecord());
    if (json) {
      files.push_back(jsonObject({{"name", entry.stem},
                                  {"path", folder->fileOf(entry.stem).string()},
                                  {"bytes", entry.bytes},
                                  {"last_use", entry.lastUse.tv_sec},
                                  {"model", record.model},
                                  {"options", record.options},
                                  {"summary", record.summary},
                                  {"memory_bytes", record.memory}}));
      continue;
    }
    writeOut(printable(timeText(entry.lastUse.tv_sec) + "  " +
                       bytesWithUnit(entry.bytes) + "  " + entry.stem + "  " +
                       record.summary + "  " + record.model +
                       (record.options.empty() ? "" : " " + record.options)) +
             "\n");
  }
  if (json)
    writeJson(jsonArray(files), 1);
}

static void remove(const std::vector<std::string> &names) {
  const std::optional<CacheFolder> folder = openCache();
  for (std::string name : names) {
    if (name.ends_with(".qwen"))
      name.resize(name.size() - std::string_view(".qwen").size());
    if (name.find('/') != name.npos || !folder || !folder->has(name))
      throw Error("the cache has no " + quote(name) +
                  "; qwen-run cache list shows what it has");
    if (!folder->remove(name))
      throw Error(part::file(folder->fileOf(name).string()) +
                  " is being compiled by another process");
  }
}

static void prune(uint64_t most) {
  const std::optional<CacheFolder> folder = openCache();
  if (!folder)
    return;
  folder->removeRests();
  std::vector<std::string> removed;
  const std::string compiler = compilerDigits();
  for (const CacheEntry &entry : folder->entries())
    if (!compiler.empty() && !entry.stem.ends_with("-" + compiler) &&
        folder->remove(entry.stem))
      removed.push_back(entry.stem);
  std::ranges::copy(folder->makeRoom(folder->disk(), 0, most),
                    std::back_inserter(removed));
  for (const std::string &name : removed)
    writeOut("removed " + folder->fileOf(name).string() + "\n");
}

//===----------------------------------------------------------------------===//
// Cached prompts
//===----------------------------------------------------------------------===//

namespace {
/// The cached prompts of a model.
struct PromptsOfModel {
  uint64_t pages = 0, snapshots = 0, bytes = 0;
  int64_t lastUse = 0;
};
} // namespace

/// The cached prompts by the names of models in their roots. Files that another
/// version wrote, or that are damaged, have no name.
static std::map<std::string, PromptsOfModel>
promptsByModel(const PromptFolder &folder) {
  std::map<std::string, PromptsOfModel> models;
  std::vector<uint8_t> front(kMostHeadBytes);
  for (const PromptFile &file : folder.files().files) {
    std::string name;
    try {
      const auto read = folder.readFront(file, front);
      if (!read)
        continue;
      name = parsePageFile(std::span(front).first(read->count), read->fileBytes)
                 .root.artifact;
    } catch (const Error &) {
      // It is no file of this version.
      name.clear();
    }
    PromptsOfModel &model = models[name];
    ++(file.place ? model.snapshots : model.pages);
    model.bytes += file.bytes;
    model.lastUse = std::max(model.lastUse, file.lastUse / 1'000'000'000);
  }
  return models;
}

static void listPrompts(const std::string &path, bool json) {
  std::vector<JsonText> rows;
  for (const auto &[name, model] : promptsByModel(PromptFolder(path, false)))
    if (json)
      rows.push_back(jsonObject({{"model", name},
                                 {"tokens", model.pages * kPageTokens},
                                 {"snapshots", model.snapshots},
                                 {"bytes", model.bytes},
                                 {"last_use", model.lastUse}}));
    else
      writeOut(
          printable(timeText(model.lastUse) + "  " +
                    bytesWithUnit(model.bytes) + "  " +
                    std::to_string(model.pages * kPageTokens) + " tokens  " +
                    std::to_string(model.snapshots) + " snapshots  " +
                    (name.empty() ? "of another version, or damaged" : name)) +
          "\n");
  if (json)
    writeJson(jsonArray(rows), 1);
}

static void clearPrompts(const std::string &path) {
  PromptFolder folder(path, false);
  if (!folder.whyReadOnly().empty())
    throw Error("cannot write " + part::file(path) + ": " +
                part::found(folder.whyReadOnly()));
  folder.lock();
  folder.removeTemporaries();
  uint64_t bytes = 0;
  for (const PromptFile &file : folder.files().files) {
    folder.remove(file);
    bytes += file.bytes;
  }
  folder.unlock();
  writeOut("removed " + bytesWithUnit(bytes) + "\n");
}

static void addPrompts(const Command &cache) {
  const auto path = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  const Command show = cache.addCommand(
      "prompts", "Print time of the last use, size, tokens and snapshots of "
                 "each model in a folder of serve --cache-dir");
  show.addText("DIR", *path, "The folder").type("DIR").required();
  show.addFlag("--json", *json, "Print JSON");
  show.onRun([path, json] { listPrompts(*path, *json); });
  const Command clear = cache.addCommand(
      "clear", "Remove all cached prompts in a folder of serve --cache-dir, "
               "also while servers use it");
  clear.addText("DIR", *path, "The folder").type("DIR").required();
  clear.onRun([path] { clearPrompts(*path); });
}

void qwen::run::addCache(const Command &program) {
  const Command sub = program.addCommand(
      "cache", "Show or remove the files that commands compiled of a MODEL, "
               "and cached prompts");
  sub.requireCommand();

  const auto json = std::make_shared<bool>(false);
  const Command show = sub.addCommand(
      "list", "Print time of the last use, size, name, formats and model of "
              "each file, the least recently used first");
  show.addFlag("--json", *json, "Print JSON");
  show.onRun([json] { list(*json); });

  const auto names = std::make_shared<std::vector<std::string>>();
  const Command rm = sub.addCommand("rm", "Remove files");
  rm.addTexts("NAME", *names, "Name of a file, as list prints it").required();
  rm.onRun([names] { remove(*names); });

  const auto most = std::make_shared<uint64_t>(UINT64_MAX);
  const Command less = sub.addCommand(
      "prune", "Remove files of other versions of qwen-opt and what killed "
               "compiles left, then the least recently used files until 5% of "
               "the disk is free");
  less.addSize(
      "--max-size", *most,
      "Remove further files until all together have this size at most; "
      "default is no limit; units are b, k, m, g and t, of 1024");
  less.onRun([most] { prune(*most); });

  const auto model = std::make_shared<ModelFile>();
  const Command addition = sub.addCommand(
      "add", "Compile a MODEL unless the cache has it, and print the path of "
             "its file");
  addFile(addition, *model);
  // Another file than one of the cache disappears with this process.
  addition.onRun([model] { writeOut(model->path(FilePlace::Cache) + "\n"); });

  const Command path = sub.addCommand("path", "Print the folder");
  path.onRun([] { writeOut(requirePath().string() + "\n"); });

  addPrompts(sub);
}
