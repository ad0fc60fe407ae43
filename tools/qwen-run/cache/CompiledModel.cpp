//===- CompiledModel.cpp - From a MODEL to a compiled file ----------------===//

#include "cache/CompiledModel.h"

#include "CompilerProgram.h"
#include "Output.h"
#include "artifact/Artifact.h"
#include "cache/CacheFolder.h"
#include "cache/Fingerprint.h"
#include "cache/ModelSource.h"
#include "cache/RunCompiler.h"
#include "cache/ScratchFolder.h"
#include "qwen/ABI/CpuFeatures.h"
#include "qwen/ABI/HostTarget.h"
#include "qwen/Support/ControlGroups.h"
#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;
namespace fs = std::filesystem;

static void say(const std::string &line) {
  writeError("qwen-run: " + printable(line) + "\n");
}

std::string qwen::run::bytesWithUnit(uint64_t bytes) {
  constexpr const char *kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit)
    size /= 1024;
  char text[40];
  std::snprintf(text, sizeof text, size < 100 ? "%.1f %s" : "%.0f %s", size,
                kUnits[unit]);
  return text;
}

//===----------------------------------------------------------------------===//
// Names of cached files
//===----------------------------------------------------------------------===//

/// Adds the files that the value of an option names.
static void addInputs(Fingerprint &hash, const CompileArgument &argument) {
  if (!argument.option->namesInput() || argument.value.empty())
    return;
  std::error_code error;
  fs::path path = argument.value;
  if (!fs::exists(path, error))
    path = argument.value.substr(0, argument.value.rfind('='));
  if (!fs::is_directory(path, error))
    return hash.addFile("", path);
  for (const auto &[name, file] : filesBelow(path))
    hash.addFile(name, file);
}

/// A name for what a compile of `source` on this machine gives, whichever
/// compiler runs.
static std::string inputsName(const ModelSource &source,
                              const std::vector<CompileArgument> &arguments) {
  Fingerprint hash;
  hash.add(source.name);
  hash.add(archName(hostArch()));
  hash.add(toString(hostFeatures()));
  for (const auto &[name, file] : source.files())
    hash.addFile(name, file);
  for (const CompileArgument &argument : arguments) {
    hash.add(argument.text());
    addInputs(hash, argument);
  }
  constexpr size_t kMostLetters = 80;
  std::string name = source.name.substr(0, kMostLetters);
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-')
      c = '_';
  if (name.starts_with('.'))
    name.front() = '_';
  return name + "-" + hash.digits();
}

static std::string digitsOf(const fs::path &compiler) {
  constexpr size_t kDigits = 8;
  Fingerprint hash;
  hash.addContents(compiler);
  return hash.digits().substr(0, kDigits);
}

std::string qwen::run::compilerDigits() {
  const auto compiler = findCompiler();
  return compiler ? digitsOf(*compiler) : "";
}

static std::string bootId() {
  return firstLine("/proc/sys/kernel/random/boot_id").value_or("unknown");
}

//===----------------------------------------------------------------------===//
// What is said of a file
//===----------------------------------------------------------------------===//

/// Adds to `record` what the file says.
static CacheRecord describe(const fs::path &file, CacheRecord record) {
  const Artifact artifact(file.string());
  const Manifest &manifest = artifact.manifest();
  const TargetInfo *target = manifest.bestTarget(hostArch(), hostFeatures());
  record.summary = manifest.weightFormats() + " for " +
                   (target ? *target : manifest.targets.front()).name;
  int64_t arena = 0;
  for (const ProgramInfo &program : manifest.programs)
    arena = std::max(arena, program.arenaBytes);
  record.memory = artifact.header().weights.size +
                  static_cast<uint64_t>(arena + manifest.kv.pageBytes);
  record.tokenBytes = static_cast<uint64_t>(manifest.kv.tokenBytes);
  return record;
}

/// Whether the file lies in memory already and takes no more.
static bool liesInMemory(const fs::path &file) {
  struct statfs status;
  return statfs(file.c_str(), &status) == 0 && status.f_type == TMPFS_MAGIC;
}

/// Throws Error if a model needs more memory than is free. `wayOut` follows the
/// advice.
static void requireMemory(const std::string &name, uint64_t needed,
                          std::optional<uint64_t> free,
                          const std::string &wayOut) {
  if (free && needed > *free)
    throw Error(part::file(name) + " needs " +
                part::needed(bytesWithUnit(needed)) + " of memory when " +
                part::found(bytesWithUnit(*free)) +
                " are free; a format of fewer bits needs less (--weights, see "
                "qwen-opt --help), and so does --max-tokens" +
                wayOut);
}

/// Tells what a model needs. Throws Error if that is more than there is, unless
/// the caller judges that.
static void announce(const std::string &name, const CacheRecord &record,
                     const fs::path &file, bool mayRefuse) {
  const std::optional<uint64_t> free = freeMemory();
  say(name + ": " + record.summary + "; it needs " +
      bytesWithUnit(record.memory) + " of memory and " +
      bytesWithUnit(record.tokenBytes) + " for each token of context" +
      (free ? "; " + bytesWithUnit(*free) + " are free" : ""));
  if (mayRefuse && !liesInMemory(file))
    requireMemory(name, record.memory, free,
                  "; qwen-run chat " + file.string() + " runs it nevertheless");
}

//===----------------------------------------------------------------------===//
// The cache
//===----------------------------------------------------------------------===//

namespace {
/// A model that has to be compiled, and its place in the cache.
class Request {
public:
  Request(const std::string &given,
          const std::vector<CompileArgument> &arguments, ModelSource source,
          bool make, CompileProgressFn progress = {});

  /// Whether the cache has the file. Its name is `stem` then. Otherwise `why`
  /// says what is wrong with a file that it has.
  bool findCached();
  /// The path of the cached file, after it is told what the model needs.
  std::string cached() const {
    announce(source.name, record, path(), !progress);
    return path();
  }
  /// Compiles the model, or waits for another process that does. Returns the
  /// path of the file.
  std::string compile(FilePlace place);
  /// What is there, or what compile would do.
  std::string describe();

private:
  /// The path of the cached file, if there is a cache.
  std::string path() const { return (*where / (stem + ".qwen")).string(); }
  std::vector<std::string> command(const std::string &output) const;
  bool isUsable(const std::string &name);
  std::optional<uint64_t> memory() const;
  void requireLikelyMemory() const;
  std::vector<std::string> otherVersions() const;
  std::string again() const;
  void compileLocked(int lock);
  /// Compiles, or waits for another process that does.
  void compileIntoCache();
  /// Whether the cache and `place` share their room.
  bool isOnDisk(const fs::path &place) const;
  std::string compilePrivately() const;

  const std::string given;
  const ModelSource source;
  const CompileProgressFn progress;
  std::vector<std::string> options;
  /// The value of --weights.
  std::string weights;
  std::string inputs, stem;
  const std::optional<std::string> compiler;
  const std::optional<fs::path> where;
  /// Nothing if there is none; `reason` says why.
  std::optional<CacheFolder> folder;
  std::string reason, why;
  CacheRecord record;
};
} // namespace

Request::Request(const std::string &given,
                 const std::vector<CompileArgument> &arguments,
                 ModelSource source, bool make, CompileProgressFn progress)
    : given(given), source(std::move(source)), progress(std::move(progress)),
      inputs(inputsName(this->source, arguments)), compiler(findCompiler()),
      where(cachePath()) {
  for (const CompileArgument &argument : arguments) {
    options.push_back(argument.text());
    if (argument.option->name == "--weights")
      weights = argument.value;
  }
  stem = inputs + "-" + (compiler ? digitsOf(*compiler) : "");
  if (where)
    folder = CacheFolder::open(*where, make, reason);
  else
    reason = "neither XDG_CACHE_HOME nor HOME is set";
}

std::vector<std::string> Request::command(const std::string &output) const {
  std::vector<std::string> words = {source.path.string(), "-o", output};
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

/// What the compiler says that the model will need.
std::optional<uint64_t> Request::memory() const {
  return neededMemory(*compiler, source.path.string(), weights);
}

/// Throws Error if the model will need more memory than is free. Asks the
/// compiler only where that is possible, because it takes a part of a second.
void Request::requireLikelyMemory() const {
  const std::optional<uint64_t> free = freeMemory();
  // bf16 may become f32, and 4 bits may become 8.
  constexpr uint64_t kMostGrowth = 2;
  if (!free || source.weightBytes() * kMostGrowth < *free)
    return;
  if (const std::optional<uint64_t> needed = memory())
    requireMemory(source.name, *needed, free, "");
}

/// The names of files of the same inputs by other compilers, the last used
/// first.
std::vector<std::string> Request::otherVersions() const {
  std::vector<std::string> names;
  if (folder)
    for (const CacheEntry &entry : folder->entries())
      if (entry.stem != stem && entry.stem.starts_with(inputs + "-"))
        names.insert(names.begin(), entry.stem);
  return names;
}

bool Request::isUsable(const std::string &name) {
  if (!folder || !folder->has(name))
    return false;
  const fs::path file = folder->fileOf(name);
  try {
    const Artifact artifact(file.string());
    artifact.checkCode();
    const std::optional<CacheRecord> known = folder->record(name);
    // A crash of the machine may have lost what was written, or a run has found
    // damage (doubtCachedModels).
    if (!known || (!known->boot.empty() && known->boot != bootId())) {
      artifact.check();
      record = ::describe(file, known.value_or(CacheRecord{.model = given}));
      record.boot.clear();
      if (folder->isWritable())
        folder->writeRecord(name, record);
    } else {
      record = *known;
    }
  } catch (const OutputError &) {
    throw;
  } catch (const Error &error) {
    why = error.what();
    return false;
  }
  folder->touch(name);
  return true;
}

bool Request::findCached() {
  if (isUsable(stem))
    return true;
  if (compiler)
    return false;
  for (const std::string &other : otherVersions())
    if (isUsable(other)) {
      stem = other;
      return true;
    }
  throw Error(quote(given) +
              " is not compiled, and there is no qwen-opt beside "
              "qwen-run or in PATH; on a machine that has it: " +
              shellLine({"qwen-opt", given, "-o", source.name + ".qwen"}) +
              (options.empty() ? "" : " " + shellLine(options)) + " --target " +
              hostTarget());
}

/// Why a file is compiled that the cache had; empty if it had none.
std::string Request::again() const {
  if (!why.empty())
    return " again: " + why;
  return otherVersions().empty()
             ? ""
             : " again: its cached file is of another version of qwen-opt";
}

/// Compiles into the cache, whose name `stem` is locked.
void Request::compileLocked(int lock) {
  folder->removeTemporaries(stem);
  const auto removed = folder->makeRoom(folder->disk(), source.weightBytes());
  if (!removed.empty())
    say("removed " + std::to_string(removed.size()) +
        (removed.size() == 1 ? " file that was" : " files that were") +
        " used least recently from " + folder->path().string() +
        ", because less than 5% of the disk was free");
  say("compiles " + source.name + " (" + bytesWithUnit(source.weightBytes()) +
      ")" + again());
  record = {.model = fs::absolute(source.path).string(),
            .options = shellLine(options),
            .boot = bootId()};
  folder->writeRecord(stem, record);
  runCompiler(*compiler, command(path()), lock, progress);
  record = ::describe(path(), record);
  folder->writeRecord(stem, record);
  for (const std::string &old : otherVersions())
    folder->remove(old);
}

/// Compiles into a file without a name, which disappears with this process.
std::string Request::compilePrivately() const {
  std::optional<ScratchFolder> scratch;
  try {
    scratch.emplace();
  } catch (const Error &error) {
    throw Error("there is no room for a compiled model: the cache cannot be "
                "used (" +
                reason + "), and " + error.what() +
                "; set XDG_CACHE_HOME or TMPDIR to a folder of your own");
  }
  say("compiles " + source.name + " (" + bytesWithUnit(source.weightBytes()) +
      ") for this run only: the cache cannot be used (" + reason + ")");
  const fs::path file = scratch->path() / (source.name + ".qwen");
  runCompiler(*compiler, command(file.string()), -1, progress);
  announce(source.name, ::describe(file, {}), file, !progress);
  // Open until the process ends.
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    throw Error("cannot read " + part::file(file.string()) + ": " +
                part::found(std::strerror(errno)));
  return "/proc/self/fd/" + std::to_string(fd);
}

/// Whether `error` says that a disk or the part of this user is full.
static bool isForWantOfRoom(const Error &error) {
  const std::string_view text = error.what();
  return std::ranges::any_of(std::array{ENOSPC, EDQUOT}, [&](int number) {
    return text.find(std::strerror(number)) != text.npos;
  });
}

std::string Request::compile(FilePlace place) {
  if (!progress)
    requireLikelyMemory();
  const bool isPrivate = place == FilePlace::Anywhere;
  if (folder && !folder->isWritable())
    reason = folder->path().string() + ": it is read-only";
  if (!folder || !folder->isWritable()) {
    if (isPrivate)
      return compilePrivately();
    throw Error("the cache cannot be used (" + reason +
                "); set XDG_CACHE_HOME to a folder of your own");
  }
  try {
    compileIntoCache();
  } catch (const Error &error) {
    if (!isPrivate || !isForWantOfRoom(error) ||
        isOnDisk(ScratchFolder::parent()))
      throw;
    reason = error.what();
    return compilePrivately();
  }
  return cached();
}

bool Request::isOnDisk(const fs::path &place) const {
  struct stat one, other;
  return stat(folder->path().c_str(), &one) == 0 &&
         stat(place.c_str(), &other) == 0 && one.st_dev == other.st_dev;
}

void Request::compileIntoCache() {
  std::optional<CacheLock> lock = folder->lock(stem, false);
  if (!lock) {
    say("waits for another qwen-run that compiles " + source.name);
    lock.emplace(*folder->lock(stem, true));
  }
  if (!isUsable(stem)) {
    try {
      compileLocked(lock->descriptor());
    } catch (...) {
      lock.reset();
      std::error_code ignored;
      if (!fs::exists(path() + ".calibration", ignored) && !folder->has(stem))
        folder->remove(stem);
      throw;
    }
  }
}

std::string Request::describe() {
  if (findCached())
    return given + " is compiled: " + path() + ", " + record.summary + ", " +
           bytesWithUnit(record.memory) + " of memory\n";
  std::string text = "would compile " + source.path.string() + " (" +
                     bytesWithUnit(source.weightBytes()) + ")" + again() + "\n";
  if (const std::optional<uint64_t> needed = memory())
    text += "it would need " + bytesWithUnit(*needed) + " of memory, and " +
            bytesWithUnit(freeMemory().value_or(0)) + " are free\n";
  if (!reason.empty())
    return text +
           "into a private file of this run, because the cache cannot "
           "be used: " +
           reason + "\n";
  std::vector<std::string> removed;
  if (folder)
    removed = folder->makeRoom(folder->disk(), source.weightBytes(), UINT64_MAX,
                               true);
  for (const std::string &name : removed)
    text += "would remove " + folder->fileOf(name).string() + "\n";
  std::vector<std::string> words = {*compiler};
  std::ranges::copy(command(path()), std::back_inserter(words));
  return text + shellLine(words) + "\n";
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

/// Throws Error if there are arguments for a file that is compiled already.
static void requireNone(const std::string &given,
                        const std::vector<CompileArgument> &arguments) {
  if (!arguments.empty())
    throw Error(part::subject(arguments.front().option->name) +
                " has no effect on " + part::file(given) +
                ", which is compiled already; give the checkpoint instead");
}

/// The paths that compiledModel has returned for models that it compiles.
static std::vector<std::string> usedModels;

std::string
qwen::run::compiledModel(const std::string &given,
                         const std::vector<CompileArgument> &arguments,
                         FilePlace place, const CompileProgressFn &progress) {
  ModelSource source = findModel(given);
  if (source.isCompiled) {
    requireNone(given, arguments);
    return given;
  }
  Request request(given, arguments, std::move(source), true, progress);
  const std::string path =
      request.findCached() ? request.cached() : request.compile(place);
  usedModels.push_back(path);
  return path;
}

void qwen::run::doubtCachedModels(const std::string &error) {
  const std::optional<fs::path> where = cachePath();
  for (const std::string &used : usedModels) {
    const fs::path path = used;
    if (path.parent_path() != where ||
        error.find(printable(used)) == error.npos)
      continue;
    try {
      std::string reason;
      const auto folder = CacheFolder::open(*where, false, reason);
      auto record = folder ? folder->record(path.stem()) : std::nullopt;
      if (!record)
        continue;
      // No boot has this name.
      record->boot = "doubted";
      folder->writeRecord(path.stem(), *record);
    } catch (const std::exception &) {
      // The first error counts.
      continue;
    }
  }
}

std::string
qwen::run::describeCompile(const std::string &given,
                           const std::vector<CompileArgument> &arguments) {
  ModelSource source = findModel(given);
  if (source.isCompiled) {
    requireNone(given, arguments);
    return given + " is a compiled file\n";
  }
  return Request(given, arguments, std::move(source), false).describe();
}
