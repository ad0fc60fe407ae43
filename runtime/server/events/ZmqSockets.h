//===- ZmqSockets.h - Batches of events by ZeroMQ ---------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_EVENTS_ZMQSOCKETS_H
#define QWEN_RUNTIME_SERVER_EVENTS_ZMQSOCKETS_H

#include "server/ServerOptions.h"
#include "server/events/EventSockets.h"

#include <functional>
#include <memory>

namespace qwen::server {

/// Gets a line of the log.
using EventLogFn = std::function<void(const std::string &line)>;

/// The sockets of --kv-events, which are bound; `log` gets a line with their
/// addresses. Throws Error if an address cannot be used or is not local, or if
/// libzmq is not there.
std::unique_ptr<EventSockets> openZmqSockets(const ServerOptions &options,
                                             const EventLogFn &log);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_EVENTS_ZMQSOCKETS_H
