//===- ByteStream.h - A socket, with or without TLS -------------*- C++ -*-===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_BYTESTREAM_H
#define QWEN_RUNTIME_SERVER_HTTP_BYTESTREAM_H

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>

#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <sys/socket.h>
#include <utility>

namespace qwen::server {

using TlsContext = boost::asio::ssl::context;

/// The result of an operation begins with its error.
constexpr auto kWait = boost::asio::as_tuple(boost::asio::use_awaitable);

/// Boost.Beast reads and writes it (concept AsyncStream).
class ByteStream {
  using Plain =
      boost::beast::basic_stream<boost::asio::generic::stream_protocol>;

public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using executor_type = Plain::executor_type;

  /// Without a context, bytes are as they are.
  ByteStream(Socket socket, TlsContext *context) : plain(std::move(socket)) {
    if (context)
      tls.emplace(plain, *context);
  }

  executor_type get_executor() { return plain.get_executor(); }
  Plain::socket_type &socket() { return plain.socket(); }
  void close() { plain.close(); }
  /// The time for the next operations, each.
  void expiresAfter(std::chrono::milliseconds time) {
    plain.expires_after(time);
  }
  void expiresNever() { plain.expires_never(); }

  /// Agrees on a key. Returns whether it did.
  boost::asio::awaitable<bool> begin() {
    if (tls) {
      const auto [error] = co_await tls->async_handshake(
          boost::asio::ssl::stream_base::server, kWait);
      co_return !error;
    }
    co_return true;
  }

  /// Tells the client that no byte follows.
  boost::asio::awaitable<void> end() {
    if (tls)
      co_await tls->async_shutdown(kWait);
    shutdown(plain.socket().native_handle(), SHUT_WR);
    co_return;
  }

  /// Reads some bytes that nobody needs. Returns their number, 0 at the end.
  boost::asio::awaitable<size_t> discard() {
    std::array<char, 16384> bytes;
    const auto [error, size] =
        co_await plain.async_read_some(boost::asio::buffer(bytes), kWait);
    co_return error ? 0 : size;
  }

  /// Sends what the system takes at once, and returns its size. Costs a small
  /// part of an asynchronous write.
  size_t writeNow(std::string_view text) {
    if (tls)
      return 0;
    const ssize_t size = send(plain.socket().native_handle(), text.data(),
                              text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return size > 0 ? static_cast<size_t>(size) : 0;
  }

  template <typename Buffers, typename Handler>
  auto async_read_some(const Buffers &buffers, Handler &&handler) {
    return onStream([&](auto &stream) {
      return stream.async_read_some(buffers, std::forward<Handler>(handler));
    });
  }
  template <typename Buffers, typename Handler>
  auto async_write_some(const Buffers &buffers, Handler &&handler) {
    return onStream([&](auto &stream) {
      return stream.async_write_some(buffers, std::forward<Handler>(handler));
    });
  }

private:
  /// Starts an operation on the stream that has the client's bytes.
  template <typename Operation> auto onStream(const Operation &start) {
    if (tls)
      return start(*tls);
    return start(plain);
  }

  Plain plain;
  std::optional<boost::asio::ssl::stream<Plain &>> tls;
};

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_BYTESTREAM_H
