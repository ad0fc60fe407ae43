//===- OutputTarget.cpp - Where a tool writes -----------------------------===//

#include "qwen/Support/OutputTarget.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace qwen;

namespace {
struct Registry {
  std::mutex lock;
  std::set<std::string> inputs;
  std::vector<const OutputTarget *> outputs;
};
} // namespace

static Registry &registry() {
  static Registry all;
  return all;
}

static std::optional<struct stat> statusOf(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0)
    return std::nullopt;
  return status;
}

static bool isSame(const struct stat &one, const struct stat &other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// Whether `path` is the regular file of `status` now. An inode that was freed
/// may have become another file.
static bool isFile(const std::string &path, const struct stat &status) {
  const auto now = S_ISREG(status.st_mode) ? statusOf(path) : std::nullopt;
  return now && isSame(*now, status);
}

/// The noted input that is the file of `status`, or nothing.
static std::optional<std::string> inputOf(const struct stat &status) {
  const std::lock_guard lock(registry().lock);
  const auto found =
      std::ranges::find_if(registry().inputs, [&](const std::string &input) {
        return isFile(input, status);
      });
  if (found == registry().inputs.end())
    return std::nullopt;
  return *found;
}

[[noreturn]] static void refuse(const std::string &output,
                                const std::string &input) {
  const std::string found =
      output == input ? "it is an input" : "it is the input '" + input + "'";
  throw OutputError("cannot write '" + part::file(output) +
                    "': " + part::found(found) + "; name another file");
}

void qwen::noteInput(const std::string &path) {
  const std::optional<struct stat> status = statusOf(path);
  if (!status || !S_ISREG(status->st_mode))
    return;
  const std::lock_guard lock(registry().lock);
  for (const OutputTarget *output : registry().outputs)
    if (isFile(output->path(), *status))
      refuse(output->path(), path);
  registry().inputs.insert(path);
}

bool qwen::isInput(const std::string &path) {
  const std::optional<struct stat> status = statusOf(path);
  return status && inputOf(*status);
}

OutputTarget::OutputTarget(std::string path) : target(std::move(path)) {
  if (target.empty())
    throw OutputError("cannot write '': the name of a file is needed");
  if (const std::optional<struct stat> status = statusOf(target)) {
    if (S_ISDIR(status->st_mode))
      throw OutputError("cannot write '" + part::file(target) + "': it is " +
                        part::found("a folder") + "; name a file in it");
    if (const std::optional<std::string> input = inputOf(*status))
      refuse(target, *input);
  }
  const std::lock_guard lock(registry().lock);
  registry().outputs.push_back(this);
}

OutputTarget::~OutputTarget() {
  const std::lock_guard lock(registry().lock);
  std::erase(registry().outputs, this);
}

int OutputTarget::openStream() const {
  const std::optional<struct stat> status = statusOf(target);
  if (!status)
    return -1;
  int fd = -1;
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own;
    // A second descriptor of an own, because another one of a file would begin
    // at its start.
    if (fd < 0 && fstat(standard, &own) == 0 && isSame(own, *status))
      fd = fcntl(standard, F_DUPFD_CLOEXEC, 0);
  }
  if (fd < 0 && S_ISREG(status->st_mode))
    return -1;
  if (fd < 0)
    fd = open(target.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    throw Error("cannot write '" + part::file(target) +
                "': " + part::found(std::strerror(errno)));
  return fd;
}
