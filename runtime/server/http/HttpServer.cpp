//===- HttpServer.cpp - Connections, on one thread ------------------------===//

#include "server/http/HttpServer.h"

#include "server/http/Access.h"
#include "server/http/Connection.h"
#include "server/http/Workers.h"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <algorithm>
#include <charconv>
#include <fcntl.h>
#include <list>
#include <netinet/tcp.h>
#include <optional>
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
} // namespace

static Address parseAddress(const std::string &text) {
  if (text.starts_with(kUnix)) {
    const std::string path = text.substr(kUnix.size());
    if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path))
      throw Error("--listen " + text + ": the path must have 1 to " +
                  std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
    return {asio::local::stream_protocol::endpoint(path), true};
  }
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host == "localhost")
    host = "127.0.0.1";
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const char *const end = text.data() + text.size();
  const char *const first =
      colon == std::string::npos ? end : text.data() + colon + 1;
  const auto [last, wrong] = std::from_chars(first, end, port);
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error || wrong != std::errc() || last != end)
    throw Error("--listen " + text +
                " must be HOST:PORT with a numeric host or localhost, or "
                "unix:PATH");
  return {asio::ip::tcp::endpoint(address, port), address.is_loopback()};
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
  ~State();

  void open();
  void removeLeftSocket(const char *path);
  /// Closes the oldest connection without a whole request. Returns whether
  /// there was one.
  bool closeUnread();
  /// Makes room for another connection if there are too many. Returns whether
  /// it has room.
  bool makeRoom();
  /// After `error` of accept: makes a descriptor free, or refuses the
  /// connection. Returns whether the next one can be accepted.
  bool freeDescriptor(const boost::system::error_code &error);
  asio::awaitable<void> accept(const ConnectionShared &shared);
  void start(const ConnectionShared &shared, ByteStream::Socket socket);
  asio::awaitable<void> handle(const ConnectionShared &shared,
                               ByteStream::Socket socket);
  asio::awaitable<void> awaitSignals(HttpHandler &handler);
  /// Ends all work after a first signal.
  asio::awaitable<void> drain();
  /// Ends the connections, and waits for what they have begun.
  void endConnections();
  /// Begins again what must last, if memory that lacked has ended it.
  void resume(const ConnectionShared &shared, HttpHandler &handler) noexcept;
  /// Logs why a connection failed.
  void tell(const char *what) const noexcept;

  const ServerOptions options;
  const std::vector<std::string> keys;
  const LogFn log;
  const Address address;
  const std::unique_ptr<TlsContext> tls;
  asio::io_context io{1};
  asio::basic_socket_acceptor<stream_protocol> acceptor{io};
  Changes changes;
  /// Handled from the start of `run` to the end of the server.
  std::optional<asio::signal_set> signals;
  SpareDescriptor spare;
  std::list<Connection *> connections;
  /// Whether the coroutines of these names run.
  bool isAccepting = false, awaitsSignals = false;
  /// Ends before all that its threads use.
  Workers workers{2};
};

HttpServer::State::State(const ServerOptions &serverOptions,
                         std::vector<std::string> apiKeys, LogFn logLine)
    : options(serverOptions), keys(std::move(apiKeys)), log(std::move(logLine)),
      address(parseAddress(options.listen)), tls(makeTls(options)) {
  for (const std::string &origin : options.origins)
    requireOrigin(origin);
  if (!address.isLocal && keys.empty() && !options.noAuth)
    throw Error("--listen " + options.listen +
                " is reachable by other machines: it needs an API key "
                "(--api-key-file), or --no-auth");
  open();
}

HttpServer::State::~State() {
  if (options.listen.starts_with(kUnix))
    unlink(options.listen.c_str() + kUnix.size());
}

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

void HttpServer::State::open() {
  raiseDescriptors(options.connections);
  const bool isUnix = options.listen.starts_with(kUnix);
  const char *const path = options.listen.c_str() + kUnix.size();
  if (isUnix)
    removeLeftSocket(path);
  try {
    acceptor.open(address.endpoint.protocol());
    if (!isUnix)
      acceptor.set_option(asio::socket_base::reuse_address(true));
    acceptor.bind(address.endpoint);
    constexpr mode_t kOwnerAndGroup = 0660;
    if (isUnix && chmod(path, kOwnerAndGroup) != 0)
      throw Error("cannot set the mode of " + options.listen);
    acceptor.listen();
  } catch (const boost::system::system_error &error) {
    throw Error("cannot listen on " + options.listen + ": " +
                error.code().message());
  }
}

/// Removes a socket that a killed server left: nobody listens on it.
void HttpServer::State::removeLeftSocket(const char *path) {
  struct stat status;
  if (stat(path, &status) != 0 || !S_ISSOCK(status.st_mode))
    return;
  try {
    ByteStream::Socket(io).connect(address.endpoint);
  } catch (const boost::system::system_error &) {
    unlink(path);
  }
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

bool HttpServer::State::freeDescriptor(const boost::system::error_code &error) {
  if (error != asio::error::no_descriptors && error.value() != ENFILE)
    return false;
  spare.close();
  bool isFree = closeUnread();
  if (!isFree) {
    boost::system::error_code failure;
    // The socket closes at once.
    isFree = !acceptor.non_blocking(true, failure) &&
             acceptor.accept(failure).is_open();
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
HttpServer::State::accept(const ConnectionShared &shared) {
  isAccepting = true;
  const AtEnd ends([&] { isAccepting = false; });
  asio::steady_timer pause(io);
  while (acceptor.is_open()) {
    try {
      co_await pause.async_wait(kWait);
      auto [error, socket] = co_await acceptor.async_accept(kWait);
      if (error ? freeDescriptor(error) : makeRoom()) {
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

void HttpServer::State::resume(const ConnectionShared &shared,
                               HttpHandler &handler) noexcept {
  try {
    if (!isAccepting && acceptor.is_open())
      asio::co_spawn(io, accept(shared), asio::detached);
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
  acceptor.close();
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
  throw Error("cannot listen on " + options.listen + ": " +
              error.code().message());
}

HttpServer::~HttpServer() = default;

std::string HttpServer::address() const {
  const std::string &listen = state->options.listen;
  if (listen.starts_with(kUnix))
    return listen;
  asio::ip::tcp::endpoint bound;
  const stream_protocol::endpoint local = state->acceptor.local_endpoint();
  bound.resize(local.size());
  std::memcpy(bound.data(), local.data(), local.size());
  std::string host = listen.substr(0, listen.rfind(':'));
  if (host.find(':') != std::string::npos && !host.starts_with('['))
    host = "[" + host + "]";
  return (state->tls ? "https://" : "http://") + host + ":" +
         std::to_string(bound.port());
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

void HttpServer::run(HttpHandler &handler,
                     const std::function<void()> &onReady) try {
  State &server = *state;
  const bool isTcp = !server.options.listen.starts_with(kUnix);
  ConnectionShared shared{.io = server.io,
                          .workers = server.workers.context(),
                          .handler = handler,
                          .changes = server.changes,
                          .options = server.options,
                          .keys = server.keys,
                          .log = server.log,
                          .checksHost = isTcp && server.address.isLocal,
                          .tls = server.tls.get()};
  server.signals.emplace(server.io, SIGTERM, SIGINT);
  asio::co_spawn(server.io, server.accept(shared), asio::detached);
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
