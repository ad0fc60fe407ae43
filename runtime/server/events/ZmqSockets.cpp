//===- ZmqSockets.cpp - Batches of events by ZeroMQ -----------------------===//
//
// The library is loaded when it is needed: few servers publish events, and
// Debian's archive of it needs libraries that have none.
//
//===----------------------------------------------------------------------===//

#include "server/events/ZmqSockets.h"

#include "server/http/NumericAddress.h"

#include "qwen/Support/Error.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <string_view>
#include <sys/eventfd.h>
#include <unistd.h>
#include <vector>
#include <zmq.h>

using namespace qwen;
using namespace qwen::server;

namespace {

/// The functions of libzmq, which stays loaded. Throws Error if it is not
/// there.
class Zmq {
  void *const library = open();

public:
  const decltype(&zmq_bind) bind = find<decltype(&zmq_bind)>("zmq_bind");
  const decltype(&zmq_close) close = find<decltype(&zmq_close)>("zmq_close");
  const decltype(&zmq_ctx_new) makeContext =
      find<decltype(&zmq_ctx_new)>("zmq_ctx_new");
  const decltype(&zmq_ctx_term) endContext =
      find<decltype(&zmq_ctx_term)>("zmq_ctx_term");
  const decltype(&zmq_errno) lastError =
      find<decltype(&zmq_errno)>("zmq_errno");
  const decltype(&zmq_getsockopt) get =
      find<decltype(&zmq_getsockopt)>("zmq_getsockopt");
  const decltype(&zmq_poll) poll = find<decltype(&zmq_poll)>("zmq_poll");
  const decltype(&zmq_recv) receive = find<decltype(&zmq_recv)>("zmq_recv");
  const decltype(&zmq_send) send = find<decltype(&zmq_send)>("zmq_send");
  const decltype(&zmq_setsockopt) set =
      find<decltype(&zmq_setsockopt)>("zmq_setsockopt");
  const decltype(&zmq_socket) makeSocket =
      find<decltype(&zmq_socket)>("zmq_socket");
  const decltype(&zmq_strerror) describe =
      find<decltype(&zmq_strerror)>("zmq_strerror");

private:
  static void *open() {
    constexpr char kName[] = "libzmq.so.5";
    if (void *const opened = dlopen(kName, RTLD_NOW | RTLD_LOCAL))
      return opened;
    throw Error(std::string("--kv-events needs the library ") + kName +
                " (the package libzmq5 of Debian, zeromq of others), which is "
                "not found");
  }
  template <typename FunctionType> FunctionType find(const char *name) const {
    void *const found = dlsym(library, name);
    if (!found)
      throw Error(std::string("--kv-events: libzmq.so.5 has no ") + name);
    return reinterpret_cast<FunctionType>(found);
  }
};

using Ended = std::unique_ptr<void, std::function<void(void *)>>;

class ZmqSockets final : public EventSockets {
public:
  /// `log` gets a line with the addresses.
  ZmqSockets(const ServerOptions &options, const EventLogFn &log);
  ~ZmqSockets() override { ::close(wakes); }
  ZmqSockets(const ZmqSockets &) = delete;
  ZmqSockets &operator=(const ZmqSockets &) = delete;

  void publish(uint64_t number, const std::string &batch) override;
  void reply(const std::string &client, uint64_t number,
             const std::string &batch) override;
  void endReply(const std::string &client) override {
    reply(client, UINT64_MAX, "");
  }
  std::optional<ReplayRequest> wait() override;
  void wake() noexcept override;

private:
  Ended open(int type, int mostMessages) const;
  /// Binds a socket, and returns its address, with the port that the system
  /// chose for port 0.
  std::string bind(void *socket, const std::string &option,
                   const std::string &address) const;
  void set(void *socket, int option, int value) const {
    zmq.set(socket, option, &value, sizeof(value));
  }
  /// Sends frames, or nothing where the socket takes none.
  void send(void *socket, std::initializer_list<std::string_view> frames) const;
  std::optional<ReplayRequest> receive() const;

  const Zmq zmq;
  const std::string topic;
  const Ended context;
  Ended publisher, router;
  /// What ends a wait, and is a part of what zmq_poll waits for.
  const int wakes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
};

} // namespace

/// The number as 8 bytes, the most significant first.
static std::string wireNumber(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes += static_cast<char>(number >> shift & 255);
  return bytes;
}

static uint64_t readWireNumber(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes)
    number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

/// The address of an option as libzmq takes it. Throws Error.
static std::string zmqAddress(const std::string &option,
                              const std::string &text, bool isPublic) {
  constexpr std::string_view kTcp = "tcp://", kFile = "ipc://";
  if (text.starts_with(kFile) && text.size() > kFile.size())
    return text;
  std::string host =
      text.starts_with(kTcp) ? text.substr(kTcp.size()) : std::string();
  if (host.starts_with("*:"))
    host.replace(0, 1, "0.0.0.0");
  const auto address = parseNumericAddress(host);
  if (!address)
    throw Error(option + " " + text +
                " must be tcp://HOST:PORT with a numeric host, localhost or "
                "*, or ipc://PATH");
  if (!address->isLoopback && !isPublic)
    throw Error(option + " " + text +
                " is reachable by other machines, and events have the tokens "
                "of all prompts: it needs 127.0.0.1, or --kv-events-public");
  const std::string name =
      address->isV6 ? "[" + address->host + "]" : address->host;
  return std::string(kTcp) + name + ":" + std::to_string(address->port);
}

ZmqSockets::ZmqSockets(const ServerOptions &options, const EventLogFn &log)
    : topic(options.kvEventsTopic),
      context(zmq.makeContext(), [this](void *made) { zmq.endContext(made); }) {
  // As many batches as vLLM's servers hold for a slow listener, and a whole
  // replay.
  constexpr int kMostBatches = 100'000, kMostReplies = 20'000;
  publisher = open(ZMQ_PUB, kMostBatches);
  std::string line =
      "kv events on " + bind(publisher.get(), "--kv-events", options.kvEvents);
  if (!options.kvEventsReplay.empty()) {
    router = open(ZMQ_ROUTER, kMostReplies);
    // Requests are short: a longer one ends its connection.
    constexpr int64_t kMostBytes = 64;
    zmq.set(router.get(), ZMQ_MAXMSGSIZE, &kMostBytes, sizeof(kMostBytes));
    set(router.get(), ZMQ_RCVHWM, 100);
    line += ", replays on " +
            bind(router.get(), "--kv-events-replay", options.kvEventsReplay);
  }
  log(line);
}

Ended ZmqSockets::open(int type, int mostMessages) const {
  Ended socket(zmq.makeSocket(context.get(), type),
               [this](void *made) { zmq.close(made); });
  if (!socket || wakes < 0)
    throw Error(std::string("--kv-events: the system gives no socket: ") +
                zmq.describe(zmq.lastError()));
  set(socket.get(), ZMQ_SNDHWM, mostMessages);
  // The last batches, when the server ends.
  constexpr int kLingerMilliseconds = 500;
  set(socket.get(), ZMQ_LINGER, kLingerMilliseconds);
  set(socket.get(), ZMQ_IPV6, 1);
  return socket;
}

std::string ZmqSockets::bind(void *socket, const std::string &option,
                             const std::string &address) const {
  if (zmq.bind(socket, address.c_str()) != 0)
    throw Error(option + " " + address +
                " cannot be used: " + zmq.describe(zmq.lastError()));
  std::array<char, 512> bound = {};
  size_t size = bound.size() - 1;
  zmq.get(socket, ZMQ_LAST_ENDPOINT, bound.data(), &size);
  return bound.data();
}

void ZmqSockets::send(void *socket,
                      std::initializer_list<std::string_view> frames) const {
  for (const std::string_view &frame : frames) {
    const int more = &frame + 1 == frames.end() ? 0 : ZMQ_SNDMORE;
    if (zmq.send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT | more) < 0)
      return;
  }
}

void ZmqSockets::publish(uint64_t number, const std::string &batch) {
  send(publisher.get(), {topic, wireNumber(number), batch});
}

void ZmqSockets::reply(const std::string &client, uint64_t number,
                       const std::string &batch) {
  send(router.get(), {client, "", wireNumber(number), batch});
}

std::optional<ReplayRequest> ZmqSockets::receive() const {
  // The client's name, an empty frame, and the number.
  constexpr size_t kFrames = 3;
  std::vector<std::string> frames;
  bool isRequest = true;
  for (int more = 1; more != 0;) {
    std::array<char, 256> bytes;
    const int size =
        zmq.receive(router.get(), bytes.data(), bytes.size(), ZMQ_DONTWAIT);
    if (size < 0)
      return std::nullopt;
    const auto count = static_cast<size_t>(size);
    if (count > bytes.size() || frames.size() == kFrames)
      isRequest = false;
    else
      frames.emplace_back(bytes.data(), count);
    size_t length = sizeof(more);
    if (zmq.get(router.get(), ZMQ_RCVMORE, &more, &length) != 0)
      return std::nullopt;
  }
  if (!isRequest || frames.size() != kFrames || !frames[1].empty() ||
      frames[2].size() != sizeof(uint64_t))
    return std::nullopt;
  return ReplayRequest{.client = frames[0], .first = readWireNumber(frames[2])};
}

std::optional<ReplayRequest> ZmqSockets::wait() {
  std::array<zmq_pollitem_t, 2> items = {
      {{.socket = nullptr, .fd = wakes, .events = ZMQ_POLLIN, .revents = 0},
       {.socket = router.get(), .fd = -1, .events = ZMQ_POLLIN, .revents = 0}}};
  // A signal ends a wait early.
  if (zmq.poll(items.data(), router ? 2 : 1, -1) < 0)
    return std::nullopt;
  if (items[0].revents) {
    uint64_t count;
    // Nothing else reads it.
    [[maybe_unused]] const ssize_t size = read(wakes, &count, sizeof(count));
  }
  return router && items[1].revents ? receive() : std::nullopt;
}

void ZmqSockets::wake() noexcept {
  constexpr uint64_t kOne = 1;
  // It fails only if the count, which wakes already, is at its end.
  [[maybe_unused]] const ssize_t size = write(wakes, &kOne, sizeof(kOne));
}

std::unique_ptr<EventSockets>
qwen::server::openZmqSockets(const ServerOptions &options,
                             const EventLogFn &log) {
  ServerOptions checked = options;
  checked.kvEvents =
      zmqAddress("--kv-events", options.kvEvents, options.kvEventsPublic);
  if (!options.kvEventsReplay.empty())
    checked.kvEventsReplay = zmqAddress(
        "--kv-events-replay", options.kvEventsReplay, options.kvEventsPublic);
  return std::make_unique<ZmqSockets>(checked, log);
}
