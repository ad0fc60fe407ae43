//===- HttpServer.cpp - Connections, on one thread ------------------------===//

#include "server/http/HttpServer.h"

#include "server/http/Access.h"
#include "server/http/Connection.h"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <algorithm>
#include <charconv>
#include <list>
#include <netinet/tcp.h>
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
static std::unique_ptr<TlsContext>
makeTls([[maybe_unused]] const ServerOptions &options) {
  if (options.certificate.empty() && options.privateKey.empty())
    return nullptr;
#ifdef QWEN_TLS
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
  return context;
#else
  throw Error("--tls-cert: this program has no TLS; a reverse proxy adds it");
#endif
}

struct HttpServer::State {
  State(const ServerOptions &options, std::vector<std::string> keys, LogFn log);
  ~State();

  void open();
  void removeLeftSocket(const char *path);
  /// Closes the oldest connection without a whole request if there are too
  /// many connections. Returns whether another one has room.
  bool makeRoom();
  asio::awaitable<void> accept(ConnectionShared &shared);
  asio::awaitable<void> handle(const ConnectionShared &shared,
                               ByteStream::Socket socket);
  asio::awaitable<void> awaitSignals(HttpHandler &handler);
  /// Ends all work after a first signal.
  asio::awaitable<void> drain();

  const ServerOptions options;
  const std::vector<std::string> keys;
  const LogFn log;
  const Address address;
  const std::unique_ptr<TlsContext> tls;
  asio::io_context io{1};
  asio::basic_socket_acceptor<stream_protocol> acceptor{io};
  Changes changes;
  std::list<Connection *> connections;
  bool isDraining = false;
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

asio::awaitable<void> HttpServer::State::handle(const ConnectionShared &shared,
                                                ByteStream::Socket socket) {
  Connection connection(shared, std::move(socket));
  const auto place = connections.insert(connections.end(), &connection);
  try {
    co_await connection.serve();
  } catch (const std::exception &error) {
    // No memory for one request does not end the others.
    if (log)
      log(std::string("a connection failed: ") + error.what());
  }
  connection.cancel();
  connections.erase(place);
}

bool HttpServer::State::makeRoom() {
  const auto open = std::ranges::count_if(
      connections, [](Connection *each) { return each->isOpen(); });
  // Connections are in the order of their age.
  return open < options.connections ||
         std::ranges::any_of(
             connections,
             [](Connection *connection) { return connection->closeUnread(); });
}

asio::awaitable<void> HttpServer::State::accept(ConnectionShared &shared) {
  while (acceptor.is_open()) {
    auto [error, socket] = co_await acceptor.async_accept(kWait);
    if (error == asio::error::operation_aborted)
      co_return;
    if (!error && makeRoom()) {
      const int on = 1;
      setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on,
                 sizeof(on));
      asio::co_spawn(io, handle(shared, std::move(socket)), asio::detached);
      continue;
    }
    // No descriptor is left, or all connections have requests: wait for one to
    // close. What was accepted is closed.
    asio::steady_timer pause(io, std::chrono::milliseconds(50));
    co_await pause.async_wait(kWait);
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

asio::awaitable<void> HttpServer::State::awaitSignals(HttpHandler &handler) {
  asio::signal_set signals(io, SIGTERM, SIGINT);
  co_await signals.async_wait(kWait);
  handler.drain();
  acceptor.close();
  asio::co_spawn(io, drain(), asio::detached);
  co_await signals.async_wait(kWait);
  io.stop();
}

HttpServer::HttpServer(const ServerOptions &options,
                       std::vector<std::string> keys, LogFn log)
    : state(std::make_unique<State>(options, std::move(keys), std::move(log))) {
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
  return std::string(state->tls ? "https://" : "http://") +
         listen.substr(0, listen.rfind(':')) + ":" +
         std::to_string(bound.port());
}

void HttpServer::wake() {
  decltype(Changes::timers) timers;
  {
    const std::lock_guard lock(state->changes.mutex);
    timers.swap(state->changes.timers);
  }
  if (!timers.empty())
    asio::post(state->io, [timers = std::move(timers)] {
      for (const auto &timer : timers)
        timer->cancel();
    });
}

void HttpServer::run(HttpHandler &handler) {
  State &server = *state;
  asio::thread_pool workers(2);
  const bool isTcp = !server.options.listen.starts_with(kUnix);
  ConnectionShared shared{.io = server.io,
                          .workers = workers,
                          .handler = handler,
                          .changes = server.changes,
                          .options = server.options,
                          .keys = server.keys,
                          .log = server.log,
                          .checksHost = isTcp && server.address.isLocal,
                          .tls = server.tls.get()};
  asio::co_spawn(server.io, server.accept(shared), asio::detached);
  asio::co_spawn(server.io, server.awaitSignals(handler), asio::detached);
  server.io.run();
  workers.join();
}
