//===- BatcherDrafts.cpp - Drafts of a step -------------------------------===//

#include "engine/Batcher.h"

#include "engine/SteadyClock.h"

#include "qwen/ABI/Blocks.h"

#include <algorithm>

using namespace qwen;

void Batcher::draft() {
  if (!drafter)
    return;
  const auto late = std::ranges::find_if(
      order, [&](const Track *track) { return isLate(*track); });
  // Each prompt may want a row in this step, and they get some tokens.
  const int64_t prompts = std::ssize(order) - decoding;
  const int64_t beside = engine.maxCallTokens() - rowsOfCall;
  const int64_t kept =
      prompts ? std::max(prompts, pace.leastPrompt() - beside) : 0;
  int64_t left =
      std::max<int64_t>(0, alignTo(decoding, rowsOfCall) - decoding - kept);
  const std::span<Track *const> tracks(order.begin(), late);
  wish(tracks, left);
  orderDrafts(tracks, left);
  prepareDrafts();
  auto next = orders.begin();
  for (Track *track : tracks)
    if (next != orders.end() && next->track == track)
      decoding += draft(*track, next++->count);
}

void Batcher::orderDrafts(std::span<Track *const> tracks, int64_t left) {
  orders.clear();
  int64_t spare = pages.spare();
  for (size_t i = 0; i < tracks.size(); ++i) {
    const Track &track = *tracks[i];
    const int64_t share =
        fixedDrafts ? std::min(fixedDrafts,
                               left / static_cast<int64_t>(tracks.size() - i))
                    : wishes[i].count;
    const bool hasRoom = std::ssize(orders) < pages.mostDrafting();
    const int64_t count =
        hasRoom
            ? std::min({share, wishes[i].most, pages.room(track, spare) - 1})
            : 0;
    spare -= pages.pagesFor(track, std::max<int64_t>(count, 0) + 1);
    if (count <= 0)
      continue;
    left -= count;
    orders.push_back({&track, count, wishes[i].strength});
  }
}

void Batcher::prepareDrafts() {
  const auto fail = [&](const Error &error) {
    for (Track *track : order)
      if (std::ranges::count(orders, track, &DraftOrder::track))
        track->job().fail(error);
    orders.clear();
  };
  const int64_t start = steadyNanoseconds();
  try {
    drafter->prepare(orders);
  } catch (const Error &error) {
    fail(error);
  } catch (const std::bad_alloc &) {
    fail(noMemory);
  }
  drafterNanoseconds = steadyNanoseconds() - start;
}

void Batcher::wish(std::span<Track *const> tracks, int64_t most) {
  wishes.clear();
  for (Track *track : tracks) {
    Job &job = track->job();
    DraftWish &wish = wishes.emplace_back(&job.drafts().shares, 0, 0);
    if (!job.hasDrafter())
      continue;
    attempt(job, [&] {
      wish.strength = drafter->strength(*track);
      if (wish.strength >= 0)
        wish.most =
            std::min({most, mostDrafts, drafter->mostDrafts(), job.mostDrafts(),
                      pages.room(*track, pages.spare()) - 1});
      if (wish.most <= 0)
        return;
      wish.other = drafter->otherStrength(*track);
      if (wish.strength >= kModelStrength)
        wish.behind = drafter->secondsBehind(*track);
    });
  }
  draftPace.prefer(wishes, decoding);
  if (!fixedDrafts)
    draftPace.choose(wishes, decoding, most, pages.mostDrafting());
}

int64_t Batcher::draft(Track &track, int64_t most) {
  drafts.clear();
  attempt(track.job(), [&] { drafter->draft(track, most, drafts); });
  const auto end = std::ranges::find_if(
      drafts, [&](int32_t id) { return !model.hasToken(id); });
  int64_t count = std::min(most, end - drafts.begin());
  if (count > 0 && !pages.allowDrafts(track))
    count = 0;
  track.draft(std::span(drafts).first(static_cast<size_t>(count)));
  return count;
}
