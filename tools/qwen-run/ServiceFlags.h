//===- ServiceFlags.h - Options of commands with a service ------*- C++ -*-===//
//
// The options of commands that answer the requests of the server's protocols,
// over HTTP or from a file.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUN_SERVICEFLAGS_H
#define QWEN_RUN_SERVICEFLAGS_H

#include "Options.h"
#include "engine/Scheduler.h"
#include "server/ServerOptions.h"

namespace qwen::run {

struct ServiceFlags : RunFlags {
  server::ServerOptions server;
  SnapshotFlags snapshots;

  Model openModel() const;
  /// Starts the engine of a model for a scheduler with these options.
  Engine &startEngine(Model &model) const;
  SchedulerOptions schedulerOptions() const;
};

/// Adds an option of ServerOptions.def.
template <typename T>
void addServerOption(const Command &command, const std::string &name, T &to,
                     const char *unit, [[maybe_unused]] double least,
                     [[maybe_unused]] double most, const std::string &help) {
  if constexpr (std::is_same_v<T, bool>) {
    command.addFlag(name, to, help);
  } else if constexpr (std::is_arithmetic_v<T>) {
    const std::string range = "; " + numberText(static_cast<T>(least)) +
                              " to " + numberText(static_cast<T>(most));
    command
        .addNumber(name, to, help + range, static_cast<T>(least),
                   static_cast<T>(most))
        .type(unit);
  } else if constexpr (std::is_same_v<T, std::string>) {
    command.addText(name, to, help).type(unit);
  } else {
    command.addTexts(name, to, help).type(unit).list(',');
  }
}

} // namespace qwen::run

#endif // QWEN_RUN_SERVICEFLAGS_H
