//===- CompilerProgram.cpp - The compiler beside this program -------------===//

#include "CompilerProgram.h"

#include "qwen/Support/Error.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::run;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Finding it
//===----------------------------------------------------------------------===//

fs::path qwen::run::programFolder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path();
}

static bool isProgram(const fs::path &path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::optional<std::string> qwen::run::findCompiler(const fs::path &folder) {
  std::vector<fs::path> folders = {folder};
  const char *variable = getenv("PATH");
  std::string_view rest = variable ? variable : "";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    folders.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (const fs::path &each : folders)
    if (const fs::path path = each / "qwen-opt";
        each.is_absolute() && isProgram(path))
      return path.string();
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Running it
//===----------------------------------------------------------------------===//

namespace {
/// A stream of a program, which a function reads by lines.
class Stream {
public:
  /// Without a function, the program has the stream `number` of this program.
  Stream(int number, const LineFn &function,
         posix_spawn_file_actions_t &actions)
      : function(function) {
    if (!function)
      return;
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw Error(std::string("cannot make a pipe: ") + strerror(errno));
    posix_spawn_file_actions_adddup2(&actions, ends[1], number);
  }
  ~Stream() {
    closeEnd(0);
    closeEnd(1);
  }
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;

  /// The end that this program reads; -1 after the last byte.
  int descriptor() const { return ends[0]; }
  void closeWriter() { closeEnd(1); }

  /// Reads what is there.
  void read() {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(ends[0], buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR)
      return;
    if (got <= 0) {
      closeEnd(0);
      if (!text.empty())
        function(text);
      return;
    }
    text.append(buffer.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = text.find('\n'); end != text.npos;
         end = text.find('\n', begin)) {
      function(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
  }

private:
  void closeEnd(size_t i) {
    if (ends[i] >= 0)
      close(ends[i]);
    ends[i] = -1;
  }

  const LineFn &function;
  std::array<int, 2> ends = {-1, -1};
  /// The beginning of a line.
  std::string text;
};

/// Attributes of posix_spawn. A program that a thread with blocked signals
/// starts (startThread) must still end by one.
struct SpawnAttributes {
  SpawnAttributes() {
    posix_spawnattr_init(&value);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&value, &none);
    posix_spawnattr_setflags(&value, POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&value); }
  SpawnAttributes(const SpawnAttributes &) = delete;
  SpawnAttributes &operator=(const SpawnAttributes &) = delete;

  posix_spawnattr_t value;
};

/// A program that runs. It ends with this object.
class Child {
public:
  Child(const std::string &program, const std::vector<std::string> &arguments,
        const posix_spawn_file_actions_t &actions) {
    std::vector<char *> words = {const_cast<char *>(program.c_str())};
    for (const std::string &argument : arguments)
      words.push_back(const_cast<char *>(argument.c_str()));
    words.push_back(nullptr);
    // An emulator may not tell that exec failed.
    if (access(program.c_str(), X_OK) != 0)
      throw Error("cannot run " + part::file(program) + ": " +
                  part::found(strerror(errno)));
    const SpawnAttributes attributes;
    if (const int error = posix_spawn(&id, program.c_str(), &actions,
                                      &attributes.value, words.data(), environ))
      throw Error("cannot run " + part::file(program) + ": " +
                  part::found(strerror(error)));
  }
  ~Child() {
    if (id <= 0)
      return;
    kill(id, SIGTERM);
    wait();
  }
  Child(const Child &) = delete;
  Child &operator=(const Child &) = delete;

  int wait() {
    int status = 0;
    while (waitpid(id, &status, 0) < 0 && errno == EINTR) {
    }
    id = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

private:
  pid_t id = 0;
};

/// File actions of posix_spawn.
class SpawnActions {
public:
  SpawnActions() {
    posix_spawn_file_actions_init(&all);
    posix_spawn_file_actions_addopen(&all, STDIN_FILENO, "/dev/null", O_RDONLY,
                                     0);
  }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&all); }
  SpawnActions(const SpawnActions &) = delete;
  SpawnActions &operator=(const SpawnActions &) = delete;

  posix_spawn_file_actions_t all;
};
} // namespace

int qwen::run::runProgram(const std::string &program,
                          const std::vector<std::string> &arguments,
                          const ProgramStreams &streams) {
  SpawnActions actions;
  Stream output(STDOUT_FILENO, streams.output, actions.all);
  Stream errors(STDERR_FILENO, streams.errors, actions.all);
  Child child(program, arguments, actions.all);
  output.closeWriter();
  errors.closeWriter();
  while (output.descriptor() >= 0 || errors.descriptor() >= 0) {
    std::array<pollfd, 2> polled = {
        {{output.descriptor(), POLLIN, 0}, {errors.descriptor(), POLLIN, 0}}};
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR)
      throw Error(std::string("cannot wait for ") + program + ": " +
                  strerror(errno));
    for (auto [stream, entry] :
         {std::pair(&output, polled[0]), {&errors, polled[1]}})
      if (entry.revents)
        stream->read();
  }
  return child.wait();
}
