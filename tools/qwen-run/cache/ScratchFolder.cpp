//===- ScratchFolder.cpp - A place for a compile of one run ---------------===//

#include "cache/ScratchFolder.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::run;
namespace fs = std::filesystem;

static constexpr std::string_view kStart = "qwen-run-", kForm = "XXXXXX";

static int openFolder(const fs::path &path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// Removes the folders of this user in `place` that no process locks.
static void removeDead(const fs::path &place) {
  std::error_code ignored;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(place, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStart) ||
        name.size() != kStart.size() + kForm.size())
      continue;
    const int fd = openFolder(entry.path());
    if (fd < 0)
      continue;
    struct stat status;
    if (fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && hasName(fd, entry.path().string()))
      fs::remove_all(entry.path(), ignored);
    close(fd);
  }
}

fs::path ScratchFolder::parent() {
  const char *variable = getenv("TMPDIR");
  return variable && *variable ? variable : "/tmp";
}

ScratchFolder::ScratchFolder() {
  removeDead(parent());
  // Another process may find it before the lock, and remove it.
  while (fd < 0) {
    std::string made =
        (parent() / (std::string(kStart) + std::string(kForm))).string();
    const bool isMade = mkdtemp(made.data()) != nullptr;
    where = made;
    fd = isMade ? openFolder(where) : -1;
    if (fd < 0 && (!isMade || errno != ENOENT))
      throw Error("cannot make a folder in " + part::file(parent().string()) +
                  ": " + part::found(std::strerror(errno)));
    (void)flock(fd, LOCK_EX);
    if (fd >= 0 && !hasName(fd, made))
      close(std::exchange(fd, -1));
  }
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(where, ignored);
  close(fd);
}
