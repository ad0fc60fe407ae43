//===- HttpServer.cpp - Connections, on one thread ------------------------===//

#include "server/http/HttpServer.h"

#include "server/http/Access.h"
#include "server/http/Connection.h"
#include "server/http/NumericAddress.h"
#include "server/http/Workers.h"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <algorithm>
#include <fcntl.h>
#include <list>
#include <netinet/tcp.h>
#include <optional>
#include <span>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace asio = boost::asio;
using asio::generic::stream_protocol;
using namespace qwen;
using namespace qwen::server;

static constexpr std::string_view kUnix = "unix:";

namespace {
/// Where a server listens.
struct Address {
  stream_protocol::endpoint endpoint;
  /// Other machines cannot reach it.
  bool isLocal;
};

/// One of the addresses of a server, and what accepts its connections.
struct Listener {
  Listener(asio::io_context &io, std::string text);
  ~Listener();
  Listener(const Listener &) = delete;
  Listener &operator=(const Listener &) = delete;

  bool isUnix() const { return text.starts_with(kUnix); }
  /// The path of a socket.
  const char *path() const { return text.c_str() + kUnix.size(); }
  void open();
  /// Removes a socket that a killed server left: nobody listens on it.
  void removeLeftSocket();
  /// As HttpServer::address has it.
  std::string name(bool hasTls) const;

  /// As --listen has it.
  const std::string text;
  const Address address;
  asio::io_context &io;
  asio::basic_socket_acceptor<stream_protocol> acceptor;
  bool isOpen = false;
  /// Whether its coroutine runs. A coroutine that waits ends with the
  /// io_context, after the listener.
  std::shared_ptr<bool> isAccepting = std::make_shared<bool>(false);
};
} // namespace

static Address parseAddress(const std::string &text) {
  if (text.starts_with(kUnix)) {
    const std::string path = text.substr(kUnix.size());
    if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path))
      throw Error("--listen " + text + ": the path must have 1 to " +
                  std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
    return {asio::local::stream_protocol::endpoint(path), true};
  }
  const std::optional<NumericAddress> numeric = parseNumericAddress(text);
  if (!numeric)
    throw Error("--listen " + text +
                " must be HOST:PORT with a numeric host or localhost, or "
                "unix:PATH");
  return {asio::ip::tcp::endpoint(asio::ip::make_address(numeric->host),
                                  numeric->port),
          numeric->isLoopback};
}

Listener::Listener(asio::io_context &serverIo, std::string listen)
    : text(std::move(listen)), address(parseAddress(text)), io(serverIo),
      acceptor(serverIo) {}

Listener::~Listener() {
  if (isOpen && isUnix())
    unlink(path());
}

void Listener::open() try {
  if (isUnix())
    removeLeftSocket();
  acceptor.open(address.endpoint.protocol());
  if (!isUnix())
    acceptor.set_option(asio::socket_base::reuse_address(true));
  acceptor.bind(address.endpoint);
  isOpen = true;
  constexpr mode_t kOwnerAndGroup = 0660;
  if (isUnix() && chmod(path(), kOwnerAndGroup) != 0)
    throw Error("cannot set the mode of " + text);
  acceptor.listen();
} catch (const boost::system::system_error &error) {
  throw Error("cannot listen on " + text + ": " + error.code().message());
}

void Listener::removeLeftSocket() {
  struct stat status;
  if (stat(path(), &status) != 0 || !S_ISSOCK(status.st_mode))
    return;
  try {
    ByteStream::Socket(io).connect(address.endpoint);
  } catch (const boost::system::system_error &) {
    unlink(path());
  }
}

std::string Listener::name(bool hasTls) const {
  if (isUnix())
    return text;
  asio::ip::tcp::endpoint bound;
  const stream_protocol::endpoint local = acceptor.local_endpoint();
  bound.resize(local.size());
  std::memcpy(bound.data(), local.data(), local.size());
  std::string host = text.substr(0, text.rfind(':'));
  if (host.find(':') != std::string::npos && !host.starts_with('['))
    host = "[" + host + "]";
  return (hasTls ? "https://" : "http://") + host + ":" +
         std::to_string(bound.port());
}

/// Throws Error if the files are no certificate with its key.
static std::unique_ptr<TlsContext> makeTls(const ServerOptions &options) {
  if (options.certificate.empty() && options.privateKey.empty())
    return nullptr;
  auto context = std::make_unique<TlsContext>(TlsContext::tls_server);
  context->set_options(TlsContext::no_tlsv1 | TlsContext::no_tlsv1_1);
  const auto read = [](const char *flag, const std::string &file,
                       const auto &use) {
    boost::system::error_code error;
    use(error);
    if (error)
      throw Error(std::string(flag) + " " + file + ": " + error.message());
  };
  read("--tls-cert", options.certificate, [&](auto &error) {
    context->use_certificate_chain_file(options.certificate, error);
  });
  read("--tls-key", options.privateKey, [&](auto &error) {
    context->use_private_key_file(options.privateKey, TlsContext::pem, error);
  });
  // A key of another kind than the certificate's has a place beside it.
  if (SSL_CTX_check_private_key(context->native_handle()) != 1)
    throw Error("--tls-key " + options.privateKey +
                " is not the key of the certificate in " + options.certificate);
  return context;
}

namespace {
/// A descriptor that is held back. Without it, a process that has no other
/// could not even refuse a connection: the system would keep it waiting.
class SpareDescriptor {
public:
  SpareDescriptor() { open(); }
  ~SpareDescriptor() { close(); }
  SpareDescriptor(const SpareDescriptor &) = delete;
  SpareDescriptor &operator=(const SpareDescriptor &) = delete;

  bool isOpen() const { return number >= 0; }
  void open() {
    if (!isOpen())
      number = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  void close() {
    if (isOpen())
      ::close(std::exchange(number, -1));
  }

private:
  int number = -1;
};
} // namespace

namespace {
/// Calls a function at the end of a coroutine. One for whose operation memory
/// lacks does not go on: asio destroys it where it waits, and throws from
/// io_context::run.
template <typename Function> class AtEnd {
public:
  explicit AtEnd(Function atEnd) : function(std::move(atEnd)) {}
  ~AtEnd() { function(); }
  AtEnd(const AtEnd &) = delete;
  AtEnd &operator=(const AtEnd &) = delete;

private:
  Function function;
};
} // namespace

struct HttpServer::State {
  State(const ServerOptions &options, std::vector<std::string> keys, LogFn log);

  /// Closes the oldest connection without a whole request. Returns whether
  /// there was one.
  bool closeUnread();
  /// Makes room for another connection if there are too many. Returns whether
  /// it has room.
  bool makeRoom();
  /// After `error` of accept: makes a descriptor free, or refuses the
  /// connection. Returns whether the next one can be accepted.
  bool freeDescriptor(Listener &listener,
                      const boost::system::error_code &error);
  asio::awaitable<void> accept(Listener &listener,
                               const ConnectionShared &shared);
  void start(const ConnectionShared &shared, ByteStream::Socket socket);
  asio::awaitable<void> handle(const ConnectionShared &shared,
                               ByteStream::Socket socket);
  asio::awaitable<void> awaitSignals(HttpHandler &handler);
  /// Ends all work after a first signal.
  asio::awaitable<void> drain();
  /// Ends the connections, and waits for what they have begun.
  void endConnections();
  /// Begins again what must last, if memory that lacked has ended it.
  void resume(std::span<const ConnectionShared> shared,
              HttpHandler &handler) noexcept;
  /// What the connections of each listener share, in their order.
  std::vector<ConnectionShared> shareds(HttpHandler &handler);
  /// Logs why a connection failed.
  void tell(const char *what) const noexcept;

  const ServerOptions options;
  const std::vector<std::string> keys;
  const LogFn log;
  const std::unique_ptr<TlsContext> tls;
  asio::io_context io{1};
  std::list<Listener> listeners;
  Changes changes;
  /// Handled from the start of `run` to the end of the server.
  std::optional<asio::signal_set> signals;
  SpareDescriptor spare;
  std::list<Connection *> connections;
  /// Whether the coroutine of this name runs.
  bool awaitsSignals = false;
  /// Ends before all that its threads use.
  Workers workers{2};
};

/// Allows the process a descriptor for each connection and some others, if the
/// system lets it.
static void raiseDescriptors(int64_t connections) {
  constexpr rlim_t kOthers = 64;
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return;
  limit.rlim_cur = std::max(
      limit.rlim_cur,
      std::min(limit.rlim_max, static_cast<rlim_t>(connections) + kOthers));
  setrlimit(RLIMIT_NOFILE, &limit);
}

HttpServer::State::State(const ServerOptions &serverOptions,
                         std::vector<std::string> apiKeys, LogFn logLine)
    : options(serverOptions), keys(std::move(apiKeys)), log(std::move(logLine)),
      tls(makeTls(options)) {
  for (const std::string &origin : options.origins)
    requireOrigin(origin);
  if (options.listen.empty())
    throw Error("--listen needs HOST:PORT or unix:PATH");
  for (const std::string &text : options.listen)
    if (const Listener &listener = listeners.emplace_back(io, text);
        !listener.address.isLocal && keys.empty() && !options.noAuth)
      throw Error("--listen " + text +
                  " is reachable by other machines: it needs an API key "
                  "(--api-key-file), or --no-auth");
  raiseDescriptors(options.connections);
  for (Listener &listener : listeners)
    listener.open();
}

void HttpServer::State::tell(const char *what) const noexcept {
  try {
    if (log)
      log(std::string("a connection failed: ") + what);
  } catch (const std::exception &) {
    // A log ends no connection.
    return;
  }
}

asio::awaitable<void> HttpServer::State::handle(const ConnectionShared &shared,
                                                ByteStream::Socket socket) {
  Connection connection(shared, std::move(socket));
  const auto place = connections.insert(connections.end(), &connection);
  const AtEnd leave([&] {
    connections.erase(place);
    connection.cancel();
  });
  try {
    co_await connection.serve();
  } catch (const std::exception &error) {
    // No memory for one request does not end the others.
    tell(error.what());
  }
}

bool HttpServer::State::closeUnread() {
  // Connections are in the order of their age.
  return std::ranges::any_of(connections, [](Connection *connection) {
    return connection->closeUnread();
  });
}

bool HttpServer::State::makeRoom() {
  const auto open = std::ranges::count_if(
      connections, [](Connection *each) { return each->isOpen(); });
  return open < options.connections || closeUnread();
}

bool HttpServer::State::freeDescriptor(Listener &listener,
                                       const boost::system::error_code &error) {
  if (error != asio::error::no_descriptors && error.value() != ENFILE)
    return false;
  spare.close();
  bool isFree = closeUnread();
  if (!isFree) {
    boost::system::error_code failure;
    // The socket closes at once.
    isFree = !listener.acceptor.non_blocking(true, failure) &&
             listener.acceptor.accept(failure).is_open();
  }
  spare.open();
  return isFree && spare.isOpen();
}

void HttpServer::State::start(const ConnectionShared &shared,
                              ByteStream::Socket socket) {
  // What the system holds for a client that does not read is work for nothing.
  constexpr int kOn = 1, kUnsentBytes = 65536;
  const auto set = [&](int option, int value) {
    setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value,
               sizeof(value));
  };
  set(TCP_NODELAY, kOn);
  set(TCP_NOTSENT_LOWAT, kUnsentBytes);
  try {
    asio::co_spawn(io, handle(shared, std::move(socket)), asio::detached);
  } catch (const std::exception &error) {
    tell(error.what());
  }
}

asio::awaitable<void>
HttpServer::State::accept(Listener &listener, const ConnectionShared &shared) {
  *listener.isAccepting = true;
  const AtEnd ends([runs = listener.isAccepting] { *runs = false; });
  asio::steady_timer pause(io);
  while (listener.acceptor.is_open()) {
    try {
      co_await pause.async_wait(kWait);
      auto [error, socket] = co_await listener.acceptor.async_accept(kWait);
      if (error ? freeDescriptor(listener, error) : makeRoom()) {
        if (!error)
          start(shared, std::move(socket));
        continue;
      }
    } catch (const std::exception &error) {
      tell(error.what());
    }
    // All connections have requests, or memory lacks: wait for one to close.
    // What was accepted is closed.
    pause.expires_after(std::chrono::milliseconds(50));
  }
}

asio::awaitable<void> HttpServer::State::drain() {
  constexpr std::chrono::milliseconds kStep(20);
  const auto end =
      std::chrono::steady_clock::now() + milliseconds(options.drain);
  // Those that are cancelled still write their error.
  const auto last = end + std::chrono::seconds(2);
  bool isCancelled = false;
  while (!connections.empty() && std::chrono::steady_clock::now() < last) {
    for (Connection *connection : connections)
      connection->closeIdle();
    if (!isCancelled && std::chrono::steady_clock::now() > end) {
      isCancelled = true;
      for (Connection *connection : connections)
        connection->cancel();
    }
    asio::steady_timer pause(io, kStep);
    co_await pause.async_wait(kWait);
  }
  io.stop();
}

void HttpServer::State::resume(std::span<const ConnectionShared> shared,
                               HttpHandler &handler) noexcept {
  try {
    size_t index = 0;
    for (Listener &listener : listeners) {
      const ConnectionShared &own = shared[index++];
      if (!*listener.isAccepting && listener.acceptor.is_open())
        asio::co_spawn(io, accept(listener, own), asio::detached);
    }
    if (!awaitsSignals)
      asio::co_spawn(io, awaitSignals(handler), asio::detached);
  } catch (const std::exception &error) {
    tell(error.what());
  }
}

void HttpServer::State::endConnections() {
  for (Connection *connection : connections)
    connection->abort();
  // A worker may still have the request of one.
  while (!connections.empty())
    try {
      io.restart();
      io.run_one();
    } catch (const std::exception &error) {
      tell(error.what());
    }
}

asio::awaitable<void> HttpServer::State::awaitSignals(HttpHandler &handler) {
  awaitsSignals = true;
  const AtEnd ends([&] { awaitsSignals = false; });
  co_await signals->async_wait(kWait);
  handler.drain();
  for (Listener &listener : listeners)
    listener.acceptor.close();
  asio::co_spawn(io, drain(), asio::detached);
  co_await signals->async_wait(kWait);
  // A third one ends the program.
  signals->clear();
  io.stop();
}

HttpServer::HttpServer(const ServerOptions &options,
                       std::vector<std::string> keys, LogFn log) try
    : state(std::make_unique<State>(options, std::move(keys), std::move(log))) {
} catch (const boost::system::system_error &error) {
  throw Error("cannot serve: " + error.code().message());
}

HttpServer::~HttpServer() = default;

std::string HttpServer::address() const {
  std::string names;
  for (const Listener &listener : state->listeners)
    names += (names.empty() ? "" : ", ") + listener.name(state->tls != nullptr);
  return names;
}

void HttpServer::wake() {
  decltype(Changes::timers) timers;
  {
    const std::lock_guard lock(state->changes.mutex);
    timers.swap(state->changes.timers);
  }
  if (timers.empty())
    return;
  try {
    asio::post(state->io, [timers = std::move(timers)] {
      for (const auto &timer : timers)
        timer->cancel();
    });
  } catch (const std::bad_alloc &) {
    // The connections look again after the time of --keep-alive.
    return;
  }
}

/// Throws Error if the process has no descriptor for a connection.
static void requireDescriptor() {
  const SpareDescriptor ofConnection;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (!ofConnection.isOpen())
    throw Error("no descriptor is left for connections: the system allows " +
                std::to_string(limit.rlim_cur) +
                " descriptors (ulimit -n), and the server needs more");
}

std::vector<ConnectionShared> HttpServer::State::shareds(HttpHandler &handler) {
  std::vector<ConnectionShared> all;
  for (const Listener &listener : listeners)
    all.push_back({.io = io,
                   .workers = workers.context(),
                   .handler = handler,
                   .changes = changes,
                   .options = options,
                   .keys = keys,
                   .log = log,
                   .listen = listener.text,
                   .checksHost = !listener.isUnix() && listener.address.isLocal,
                   .tls = tls.get()});
  return all;
}

void HttpServer::run(HttpHandler &handler,
                     const std::function<void()> &onReady) try {
  State &server = *state;
  const std::vector<ConnectionShared> shared = server.shareds(handler);
  server.signals.emplace(server.io, SIGTERM, SIGINT);
  size_t index = 0;
  for (Listener &listener : server.listeners)
    asio::co_spawn(server.io, server.accept(listener, shared[index++]),
                   asio::detached);
  asio::co_spawn(server.io, server.awaitSignals(handler), asio::detached);
  server.spare.open();
  requireDescriptor();
  onReady();
  while (!server.io.stopped())
    try {
      server.resume(shared, handler);
      server.io.run_one();
    } catch (const std::exception &error) {
      server.tell(error.what());
    }
  server.endConnections();
} catch (const boost::system::system_error &error) {
  throw Error("cannot serve: " + error.code().message());
}
