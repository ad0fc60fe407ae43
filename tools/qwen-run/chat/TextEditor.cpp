//===- TextEditor.cpp - The user's own editor -----------------------------===//

#include "chat/TextEditor.h"

#include "Output.h"

#include "qwen/Support/Error.h"
#include "qwen/Support/Text.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace qwen;
using namespace qwen::run;

namespace {
/// A folder that only this user can read, with what an editor leaves in it.
class PrivateFolder {
public:
  PrivateFolder() {
    const char *folder = std::getenv("TMPDIR");
    path =
        std::string(folder && *folder ? folder : "/tmp") + "/qwen-run.XXXXXX";
    if (!mkdtemp(path.data()))
      throw Error("cannot make a temporary folder '" + path +
                  "': " + strerror(errno));
  }
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  PrivateFolder(const PrivateFolder &) = delete;
  PrivateFolder &operator=(const PrivateFolder &) = delete;

  std::string path;
};
} // namespace

static void writeNew(const std::string &path, const std::string &text) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    throw Error("cannot write '" + path + "': " + strerror(errno));
  const int error = writeAll(fd, text.data(), text.size());
  close(fd);
  if (error)
    throw Error("cannot write '" + path + "': " + strerror(error));
}

static std::string editorCommand() {
  for (const char *name : {"VISUAL", "EDITOR"})
    if (const char *command = std::getenv(name); command && *command)
      return command;
  return "vi";
}

/// Runs the editor until it ends.
static void runEditor(const std::string &path) {
  const std::string command = editorCommand();
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  words.push_back(path);
  std::vector<char *> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Standard error is a terminal, and standard output perhaps a file.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr,
                                 arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  while (!error && waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  // POSIX lets a spawn that fails end with this status, too.
  constexpr int kNotRun = 127;
  if (error || (WIFEXITED(status) && WEXITSTATUS(status) == kNotRun))
    throw Error("cannot run the editor " + quote(command) +
                "; set EDITOR to another one");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw Error("the editor " + quote(command) + " failed, so nothing is sent");
}

std::string qwen::run::editText(const std::string &text, uint64_t mostBytes) {
  const PrivateFolder folder;
  const std::string path = folder.path + "/message.txt";
  writeNew(path, text + (text.empty() ? "" : "\n"));
  runEditor(path);
  const std::string file = readDocument(
      path, mostBytes, "the context of the model has no room for it");
  // Some editors end lines with CRLF.
  std::string edited;
  for (size_t i = 0; i < file.size(); ++i)
    if (file[i] != '\r' || i + 1 == file.size() || file[i + 1] != '\n')
      edited += file[i];
  if (edited.ends_with('\n'))
    edited.pop_back();
  return edited;
}
