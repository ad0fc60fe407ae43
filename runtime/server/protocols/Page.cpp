//===- Page.cpp - The page ------------------------------------------------===//

#include "server/ModelRouter.h"
#include "server/Routes.h"
#include "server/Service.h"
#include "server/page/PageFiles.h"
#include "server/protocols/openai/OpenAi.h"

#include "qwen/Support/Text.h"

#include <algorithm>

using namespace qwen;
using namespace qwen::server;

/// The page runs its own script alone and talks to this server alone, whatever
/// the model writes.
static constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "font-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'";

static Reply pageReply(const PageFile &file, const HttpRequest &request) {
  const std::string hash(file.hash);
  const bool isZipped =
      !file.gzip.empty() && acceptsCoding(request.acceptEncoding, "gzip");
  const std::string tag = '"' + hash + (isZipped ? "-gzip\"" : "\"");
  // An older or a newer page has names with other hashes.
  const std::string_view age =
      request.query == "v=" + hash ? "max-age=31536000, immutable" : "no-cache";
  Reply reply{.body = "",
              .contentType = std::string(file.contentType),
              .headers = {{AnswerHeader::CacheControl, std::string(age)},
                          {AnswerHeader::ContentSecurityPolicy,
                           std::string(kContentSecurityPolicy)},
                          {AnswerHeader::ContentTypeOptions, "nosniff"},
                          {AnswerHeader::ETag, tag},
                          {AnswerHeader::ReferrerPolicy, "no-referrer"},
                          {AnswerHeader::Vary, "Accept-Encoding"}}};
  if (hasEntityTag(request.ifNoneMatch, tag)) {
    reply.status = 304;
    return reply;
  }
  if (isZipped)
    reply.headers.emplace_back(AnswerHeader::ContentEncoding, "gzip");
  reply.body = isZipped ? file.gzip : file.bytes;
  return reply;
}

template <size_t Number, typename Host>
static Parsed pageFile(const Host &host, const HttpRequest &request) {
  if (!host.hasPage)
    throw ApiError(404, "no such path: " + quote(request.path));
  return pageReply(pageFiles()[Number], request);
}

/// The page, or the health: probes that nobody has told a path ask for "/".
template <typename Host>
static Parsed frontPage(const Host &host, const HttpRequest &request) {
  host.requireRunning();
  if (!host.hasPage)
    return routeTable().find("GET", "/health").route.parse(host, request);
  return pageReply(
      *std::ranges::find(pageFiles(), "index.html", &PageFile::name), request);
}

static constexpr Route kPageRoutes[] = {
    {"GET",
     "/",
     "The page",
     {frontPage<Service>, frontPage<ModelRouter>},
     nullptr,
     kOpen | kPage},
#define QWEN_PAGE_FILE(Number, Name, ContentType, Hash)                        \
  {"GET",                                                                      \
   "/" Name,                                                                   \
   "A file of the page",                                                       \
   {pageFile<Number, Service>, pageFile<Number, ModelRouter>},                 \
   nullptr,                                                                    \
   kOpen | kPage},
#include "PageFiles.def"
};
const Protocol protocols::page = {kPageRoutes, "{}", &openai::kFraming};
