//===- LineInput.cpp - Lines without an editor, and Ctrl-C ----------------===//

#include "chat/LineInput.h"

#include "Output.h"
#include "chat/Interrupt.h"

#include "qwen/Support/Error.h"

#include <cerrno>
#include <cstring>
#include <unistd.h>
#include <utility>

using namespace qwen;
using namespace qwen::run;

volatile sig_atomic_t qwen::run::interrupted = 0;

static void interrupt(int) { interrupted = 1; }

void qwen::run::catchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = interrupt;
  sigaction(SIGINT, &action, nullptr);
}

ReadResult PlainInput::next(const std::string &prompt, std::string &line) {
  if (hasPrompt)
    writeError(prompt);
  for (size_t searched = 0;;) {
    const size_t end = held.find('\n', searched);
    if (end != std::string::npos) {
      line = held.substr(0, end);
      held.erase(0, end + 1);
      if (line.ends_with('\r'))
        line.pop_back();
      return ReadResult::Line;
    }
    if (ended) {
      line = std::exchange(held, "");
      return line.empty() ? ReadResult::End : ReadResult::Line;
    }
    if (held.size() > mostBytes)
      held.resize(mostBytes + 1);
    searched = held.size();
    char buffer[4096];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) {
      line = std::exchange(held, "");
      if (hasPrompt)
        writeError("\n");
      return ReadResult::Interrupted;
    }
    if (got < 0)
      throw Error(std::string("cannot read standard input: ") +
                  strerror(errno));
    if (got == 0) {
      ended = true;
      if (hasPrompt)
        writeError("\n");
    }
    held.append(buffer, static_cast<size_t>(got));
  }
}
