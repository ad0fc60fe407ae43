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
void addServerOption(CLI::App *app, const std::string &name, T &to,
                     const char *unit, [[maybe_unused]] double least,
                     [[maybe_unused]] double most, const std::string &help) {
  if constexpr (std::is_same_v<T, bool>) {
    app->add_flag(name, to, help);
  } else if constexpr (std::is_arithmetic_v<T>) {
    const std::string range =
        "; " + CLI::detail::to_string(static_cast<T>(least)) + " to " +
        CLI::detail::to_string(static_cast<T>(most));
    CLI::Option *option = addNumber(app, name, to, help + range,
                                    static_cast<T>(least), static_cast<T>(most))
                              ->type_name(unit);
    if (to >= least)
      option->default_str(CLI::detail::to_string(to));
  } else {
    CLI::Option *option = app->add_option(name, to, help)->type_name(unit);
    if constexpr (std::is_same_v<T, std::string>)
      option->default_str(to);
    else
      option->delimiter(',')->allow_extra_args(false);
  }
}

} // namespace qwen::run

#endif // QWEN_RUN_SERVICEFLAGS_H
