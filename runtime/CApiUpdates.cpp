//===- CApiUpdates.cpp - Updates of requests for readers ------------------===//

#include "CApiUpdates.h"

#include <algorithm>
#include <new>
#include <utility>

using namespace qwen;
using namespace qwen::capi;

/// The QWEN_UPDATE number of the alternative of Update::data with this index.
static constexpr int32_t kKinds[] = {QWEN_UPDATE_TOKEN, QWEN_UPDATE_PROGRESS,
                                     QWEN_UPDATE_ANSWER, QWEN_UPDATE_END};

bool Updates::Channel::isReadable() const {
  return !updates.empty() && updates.front().source->id != 0;
}

static Error ended() {
  return Error("the scheduler has ended", ErrorKind::Cancelled);
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

std::shared_ptr<UpdateSource> Updates::open(int64_t channel, void *user,
                                            bool atEnd) {
  const std::lock_guard lock(mutex);
  if (isClosed)
    throw ended();
  if (sources >= most)
    throw Error("the queue is full: the ends of " + std::to_string(most) +
                    " requests have not been read",
                ErrorKind::QueueFull);
  Channel &of = channels[channel];
  auto source = std::make_shared<UpdateSource>(channel, of, user, atEnd);
  ++of.sources;
  ++sources;
  return source;
}

void Updates::start(UpdateSource &source, RequestId id) {
  const std::lock_guard lock(mutex);
  source.id = id;
  source.channel->changed.notify_all();
}

void Updates::drop(UpdateSource &source) {
  const std::lock_guard lock(mutex);
  --sources;
  --source.channel->sources;
  source.channel->changed.notify_all();
  leave(source.number);
}

std::list<Update> &Updates::placeOf(UpdateSource &source) {
  return source.atEnd ? source.kept : added;
}

void Updates::add(const std::shared_ptr<UpdateSource> &source,
                  const TokenEvent &event) {
  static_assert(sizeof(qwen_logprob) == sizeof(TokenLogprob));
  std::shared_ptr<std::vector<TokenLogprob>> top;
  qwen_token_event token = {
      sizeof(token), event.id, event.position, event.isPrompt, event.logprob,
      nullptr,       0};
  if (!event.top.empty()) {
    top = std::make_shared<std::vector<TokenLogprob>>(event.top.begin(),
                                                      event.top.end());
    token.top = reinterpret_cast<const qwen_logprob *>(top->data());
    token.top_count = top->size();
  }
  placeOf(*source).push_back({token, std::move(top), source});
}

void Updates::add(const std::shared_ptr<UpdateSource> &source,
                  const Progress &progress) {
  const qwen_progress told = {sizeof(told), progress.done, progress.total,
                              progress.cached};
  placeOf(*source).push_back({told, {}, source});
}

void Updates::add(const std::shared_ptr<UpdateSource> &source,
                  std::span<const BeamTokens> answers) {
  for (const BeamTokens &answer : answers) {
    auto kept = std::make_shared<const BeamTokens>(answer);
    const qwen_beam_answer told = {sizeof(told), kept->score, kept->ids.data(),
                                   kept->logprobs.data(), kept->ids.size()};
    placeOf(*source).push_back({told, std::move(kept), source});
  }
}

void Updates::end(const std::shared_ptr<UpdateSource> &source,
                  const Ending &ending) noexcept {
  const bool failed = ending.reason == EndReason::Failed;
  qwen_ending told = {sizeof(told),
                      static_cast<int32_t>(ending.reason),
                      failed ? -static_cast<int32_t>(ending.kind) : 0,
                      "",
                      ending.promptTokens,
                      ending.cachedTokens,
                      ending.drawnTokens};
  std::shared_ptr<const std::string> text;
  try {
    text = std::make_shared<const std::string>(ending.error);
    told.text = text->c_str();
  } catch (const std::bad_alloc &) {
    told.text = "out of memory";
  }
  source->end.front() = {told, std::move(text), source};
  added.splice(added.end(), source->kept);
  added.splice(added.end(), source->end);
}

//===----------------------------------------------------------------------===//
// Readers
//===----------------------------------------------------------------------===//

void Updates::publish() {
  if (added.empty())
    return;
  const std::lock_guard lock(mutex);
  while (!added.empty()) {
    Channel &to = *added.front().source->channel;
    to.updates.splice(to.updates.end(), added, added.begin());
    to.changed.notify_all();
  }
}

void Updates::close() {
  const std::lock_guard lock(mutex);
  isClosed = true;
  for (auto &[number, channel] : channels)
    channel.changed.notify_all();
}

void Updates::release() {
  std::unique_lock lock(mutex);
  isReleased = true;
  for (auto &[number, channel] : channels)
    channel.changed.notify_all();
  left.wait(lock, [&] { return readers == 0; });
}

void Updates::leave(int64_t number) {
  const auto at = channels.find(number);
  if (at->second.sources == 0 && at->second.readers == 0)
    channels.erase(at);
}

std::list<Update> Updates::take(Channel &from, size_t capacity) {
  std::list<Update> taken;
  while (taken.size() < capacity && from.isReadable()) {
    const size_t isEnd = from.updates.front().isEnd();
    from.sources -= isEnd;
    sources -= isEnd;
    taken.splice(taken.end(), from.updates, from.updates.begin());
  }
  return taken;
}

/// What the updates point to that this thread got last.
static thread_local std::list<Update> given;

size_t Updates::next(int64_t number, std::span<qwen_update> to,
                     std::optional<std::chrono::milliseconds> timeout) {
  given.clear();
  std::unique_lock lock(mutex);
  Channel &channel = channels[number];
  ++channel.readers;
  ++readers;
  const auto hasEnded = [&] {
    return isReleased || (isClosed && channel.sources == 0);
  };
  const auto isReady = [&] { return hasEnded() || channel.isReadable(); };
  if (timeout)
    channel.changed.wait_for(lock, *timeout, isReady);
  else
    channel.changed.wait(lock, isReady);
  const bool isOver = hasEnded();
  if (!isReleased)
    given = take(channel, to.size());
  // Sources do not change any more.
  std::ranges::transform(given, to.begin(), [](const Update &update) {
    return std::visit(
        [&](const auto &data) {
          return qwen_update{static_cast<int64_t>(update.source->id),
                             update.source->user, &data,
                             kKinds[update.data.index()]};
        },
        update.data);
  });
  --channel.readers;
  if (--readers == 0 && isReleased)
    left.notify_all();
  if (!isReleased)
    leave(number);
  if (isOver)
    throw ended();
  return given.size();
}
