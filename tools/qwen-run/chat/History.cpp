//===- History.cpp - The messages that a user has sent --------------------===//

#include "chat/History.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/TemporaryFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace qwen;
using namespace qwen::run;
using nlohmann::json;

std::string qwen::run::stateFolder() {
  const char *state = std::getenv("XDG_STATE_HOME");
  // The XDG Base Directory Specification ignores relative paths.
  if (state && *state == '/')
    return std::string(state) + "/qwen-run";
  const char *home = std::getenv("HOME");
  if (home && *home == '/')
    return std::string(home) + "/.local/state/qwen-run";
  return "";
}

/// Makes a folder that only its owner may read, and those above it.
static void makeFolder(const std::filesystem::path &folder) {
  if (mkdir(folder.c_str(), 0700) == 0 || errno != ENOENT)
    return;
  makeFolder(folder.parent_path());
  (void)mkdir(folder.c_str(), 0700);
}

History::History(const std::string &folder) : path(folder + "/history") {
  makeFolder(folder);
  open();
  try {
    readAll();
    if (read.size() > 2 * kMostMessages)
      shorten();
  } catch (...) {
    close(fd);
    throw;
  }
}

History::~History() { close(fd); }

void History::fail(const char *verb, int error) const {
  throw Error(std::string("cannot ") + verb + " '" + path +
              "': " + strerror(error));
}

void History::open() {
  fd = ::open(path.c_str(),
              O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
              0600);
  if (fd < 0 && errno == ELOOP)
    throw Error("cannot use '" + path + "': it is a link");
  if (fd < 0)
    fail("open", errno);
  struct stat status;
  const bool known = fstat(fd, &status) == 0;
  if (known && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
      ((status.st_mode & 077) == 0 || fchmod(fd, 0600) == 0))
    return;
  close(fd);
  throw Error("cannot use '" + path +
              "': it is no regular file of this user's");
}

void History::readAll() {
  // Only the end of a longer file is read.
  constexpr off_t kMostRead = off_t{16} << 20;
  const off_t size = lseek(fd, 0, SEEK_END);
  const off_t begin = size > kMostRead ? size - kMostRead : 0;
  std::string text(static_cast<size_t>(size - begin), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), begin);
  if (got < 0)
    fail("read", errno);
  text.resize(static_cast<size_t>(got));
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find('\n', i), text.size());
    const json line = json::parse(text.data() + i, text.data() + end, nullptr,
                                  /*allow_exceptions=*/false);
    if (line.is_string() && !line.get_ref<const std::string &>().empty())
      read.push_back(line);
    i = end + 1;
  }
  if (!read.empty())
    last = read.back();
}

static std::string lineOf(const std::string &message) {
  return json(message).dump(-1, ' ', false, json::error_handler_t::replace) +
         '\n';
}

void History::shorten() {
  read.erase(read.begin(), read.end() - kMostMessages);
  std::string text;
  for (const std::string &message : read)
    text += lineOf(message);
  // Others that add meanwhile lose at most these messages.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0)
    return;
  if (ftruncate(fd, 0) != 0)
    fail("write", errno);
  if (const int error = writeAll(fd, text.data(), text.size()))
    fail("write", error);
  (void)flock(fd, LOCK_UN);
}

void History::add(const std::string &message) {
  if (message == last || message.size() > kMostBytes)
    return;
  last = message;
  const std::string line = lineOf(message);
  if (const int error = writeAll(fd, line.data(), line.size()))
    fail("write", error);
}
