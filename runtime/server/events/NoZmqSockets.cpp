//===- NoZmqSockets.cpp - A server without events -------------------------===//

#include "server/events/ZmqSockets.h"

#include "qwen/Support/Error.h"

using namespace qwen::server;

std::unique_ptr<EventSockets>
qwen::server::openZmqSockets(const ServerOptions & /*options*/,
                             const EventLogFn & /*log*/) {
  throw Error("this qwen-run has no --kv-events: it is static, or the header "
              "zmq.h (the package libzmq3-dev of Debian) was missing when it "
              "was built");
}
