//===- Message.h - Requests and their answers -------------------*- C++ -*-===//
//
// What passes between connections and the service that answers. Neither knows
// the other.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_RUNTIME_SERVER_HTTP_MESSAGE_H
#define QWEN_RUNTIME_SERVER_HTTP_MESSAGE_H

#include "server/http/ApiError.h"
#include "server/http/Notes.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>

namespace qwen::server {

/// The target of a request line (RFC 9112, 3.2).
struct Target {
  /// Empty unless the target is a whole URL.
  std::string authority;
  std::string path;
  /// Behind the "?".
  std::string query;
};

Target parseTarget(std::string_view target);

/// A request without what only the connection needs.
struct HttpRequest {
  std::string method;
  /// As it was sent, without the query.
  std::string path;
  std::string contentType;
  std::string contentEncoding;
  std::string body;
  std::string query = {};
  std::string acceptEncoding = {};
  std::string ifNoneMatch = {};
  /// The header Anthropic-Version, whose clients read models in another form.
  std::string anthropicVersion = {};
  /// The parameter of the path, which the service finds.
  std::string parameter = {};
  /// Draws the answer if the body has no seed; a random one if there is none.
  std::optional<uint64_t> seed = {};
  /// The number of the client's API key (findKey); nothing if it needs none.
  std::optional<size_t> key = {};
  /// Receives what the log says of it besides its line; null: nobody does.
  Notes *notes = nullptr;
};

struct Reply;

/// Called by any thread; must not block.
using WakeFn = std::function<void()>;

/// The answer to a request that is still running. The connection's thread calls
/// all functions, and waits for WakeFn in between.
class ReplyStream {
public:
  struct Part {
    std::string text;
    bool isLast = false;
  };

  virtual ~ReplyStream() = default;
  /// Whether the model answers the request, or it was refused before.
  virtual bool hasStarted() const { return true; }
  /// Whether the parts are events, which are sent as they come. Else the last
  /// part has the whole body. A request that was refused has no events.
  virtual bool isEvents() const = 0;
  /// What has come since the last call.
  virtual Part take() = 0;
  /// The error that ended the request. Events have it in their last part.
  virtual std::optional<ApiError> error() const = 0;
  virtual void cancel() = 0;
  /// What the log says of the request.
  virtual std::string summary() const = 0;
  /// The reply that takes the place of this stream's, if the server had to do
  /// something before the request: asked once, when the stream has started.
  virtual std::unique_ptr<Reply> instead() { return nullptr; }
};

/// An answer, or the stream that it comes by.
struct Reply {
  unsigned status = 200;
  std::string body;
  std::string contentType = "application/json";
  AnswerHeaders headers = {};
  std::shared_ptr<ReplyStream> stream = nullptr;
  /// Lines of the log besides the request's own.
  std::vector<std::string> notes = {};
};

/// A reply with the status and the headers of an error.
Reply errorReply(const ApiError &error, std::string body);

/// What a protocol writes besides its answers.
struct Framing {
  /// The reply to a request that is refused or has failed.
  Reply (*error)(const ApiError &error);
  /// The last bytes of a stream that has failed.
  std::string (*errorEvent)(const ApiError &error);
  /// An event of a stream. `data` is JSON; protocols that have no types of
  /// events leave `type` out.
  std::string (*event)(std::string_view type, std::string_view data);
  /// What a stream has while nothing else comes.
  std::string_view keepAlive;
  /// The schema of an error, one of Protocol::schemas.
  const char *errorSchema;
};

/// The reply of a stream that is not of events, if its last part has come.
std::optional<Reply> takeWhole(ReplyStream &stream, const Framing &framing);

/// What answers requests. All threads may call all functions.
class HttpHandler {
public:
  virtual ~HttpHandler() = default;
  /// Errors become replies. `wake` is called when the reply's stream may have
  /// another part.
  virtual Reply handle(HttpRequest request, const WakeFn &wake) = 0;
  /// Whether a path answers without a key.
  virtual bool isOpen(std::string_view path) const = 0;
  /// The framing of a path's protocol, for requests that do not reach `handle`,
  /// too.
  virtual const Framing &framingOf(std::string_view path) const = 0;
  /// The methods of all paths, with commas.
  virtual std::string methods() const = 0;
  /// Refuses all further requests that the model answers.
  virtual void drain() = 0;
  virtual bool isDraining() const = 0;
};

/// Receives one line for each request.
using LogFn = std::function<void(const std::string &)>;

/// A random id that begins with `prefix`.
std::string randomId(const std::string &prefix);

/// A JSON text; U+FFFD replaces bytes that are not UTF-8.
std::string dump(const nlohmann::ordered_json &object);

} // namespace qwen::server

#endif // QWEN_RUNTIME_SERVER_HTTP_MESSAGE_H
