//===- SharedPages.h - Threads that divide the pages of a run ---*- C++ -*-===//
//
// A long text that decodes alone has few KV heads for many threads. So threads
// divide its pages: they compute the states of pages, and behind a barrier they
// merge them in the order of pages, which is what one thread would compute.
//
//   pages of the call's runs, one KV head after the other
//   | run 0, head 0        | run 0, head 1        | run 1, head 0 ...
//   |  thread 0   |  thread 1    |  thread 2   | ...
//
// The thread that has the first page of a run merges what it has of it. The
// states of the other threads' pages lie behind the tokens that the call has
// in the result, until all are merged. Where there is no room for all, a
// window of pages follows the other.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_LIB_CODEGEN_DRIVER_SHAREDPAGES_H
#define QWEN_LIB_CODEGEN_DRIVER_SHAREDPAGES_H

#include "AttentionRun.h"

#include "qwen/CodeGen/Driver/Driver.h"

namespace qwen::driver {

/// The number of tokens from `start` on, before `last`, that follow each other
/// in one page of one sequence: they see the same pages, so one run takes them.
inline int64_t runLength(const Context *context, int64_t start, int64_t last) {
  const int64_t page = slotOf(context, start).page;
  int64_t token = start;
  while (token < last &&
         context->sequences[token] == context->sequences[start] &&
         context->positions[token] ==
             context->positions[start] + (token - start) &&
         slotOf(context, token).page == page)
    ++token;
  return token - start;
}

/// The threads of a call that have a share.
inline int64_t threadsOf(const Context *context) {
  int64_t threads = 1;
  while (context->shares[threads] < 65536)
    ++threads;
  return threads;
}

/// How the threads of a call divide the pages of attention. All threads find
/// the same.
template <typename Instance> class SharedPages {
public:
  using Run = typename Attention<Instance>::Run;

  explicit SharedPages(const Attention<Instance> &attention)
      : attention(attention), context(attention.context),
        fixed(attention.fixed), threads(threadsOf(context)) {}

  /// Whether threads should divide pages, and sets what they need for it.
  QWEN_SPECIALISED bool plan();
  /// Attention of the call. pagesOf(token, head) has the pages of a token.
  template <typename PagesOf>
  QWEN_SPECIALISED void run(int32_t thread, const PagesOf &pagesOf) const;

private:
  /// With as many units of whole runs, threads have nearly equal work.
  static constexpr int64_t kUnitsOfThread = 4;
  /// Pages that a thread must save: a barrier and the states take as long as a
  /// few pages.
  static constexpr int64_t kLeastGain = 8;
  /// The least number of pages of a window.
  static constexpr int64_t kLeastWindow = 16;

  /// A run of a KV head in a window of pages.
  struct Item {
    Run run;
    /// Its pages in the window.
    Range pages;
    /// The place of its first page in the list of all items' pages. The list
    /// has a page once for each token of the run.
    int64_t at;
    /// The states of its pages. The first one is the merged state of all pages
    /// so far, the next one belongs to the second page of the window.
    float *states;

    int64_t size() const { return pages.end - pages.begin; }
    int64_t weight() const { return size() * run.count; }
    bool isEnd() const { return pages.end == run.pages(); }
    /// The pages of a thread's range of all pages, counted from the first of
    /// the window.
    Range partOf(Range range) const {
      return {pageAt(range.begin), pageAt(range.end)};
    }
    /// The first page that lies behind `place`.
    int64_t pageAt(int64_t place) const {
      return std::clamp<int64_t>(
          ceilDiv(std::max<int64_t>(place - at, 0), run.count), 0, size());
    }
  };

  /// The states of a run are in parts of its queries, which several threads
  /// merge.
  QWEN_SPECIALISED int64_t partQueries(int64_t queries) const {
    return ceilDiv(queries, std::min(queries, ceilDiv(threads, items)));
  }
  QWEN_SPECIALISED int64_t partFloats(int64_t queries) const {
    return alignTo(attentionState(partQueries(queries), fixed.headDim), 16);
  }
  QWEN_SPECIALISED int64_t stateFloats(int64_t queries) const {
    return ceilDiv(queries, partQueries(queries)) * partFloats(queries);
  }
  QWEN_SPECIALISED int64_t queriesOf(const Run &of) const {
    return of.count * fixed.groupQueries;
  }
  /// The state of page `page` of the window, of the queries of part `part`.
  QWEN_SPECIALISED float *stateAt(const Item &item, int64_t part,
                                  int64_t page) const {
    return item.states +
           (part * window + page) * partFloats(queriesOf(item.run));
  }

  template <typename Visit> QWEN_SPECIALISED void forRuns(const Visit &) const;
  template <typename Visit>
  QWEN_SPECIALISED int64_t forItems(int64_t first, const Visit &visit) const;
  template <typename Copy>
  QWEN_SPECIALISED void forParts(const Item &item, int64_t page, float *state,
                                 const Copy &copy) const;
  template <typename Pages>
  QWEN_SPECIALISED void compute(const Item &item, const Pages &pages,
                                Range part) const;
  QWEN_SPECIALISED void mergeShared(int32_t thread, int64_t first,
                                    int64_t all) const;
  QWEN_SPECIALISED void mergePart(const Item &item, int64_t part,
                                  int64_t firstPage) const;

  const Attention<Instance> &attention;
  const Context *context;
  const Instance &fixed;
  const int64_t threads;
  /// Items of a call, the most pages of one, and the pages of a window.
  int64_t items = 0, mostPages = 0, window = 0;
};

/// Calls visit(run) for each run of a KV head.
template <typename Instance>
template <typename Visit>
void SharedPages<Instance>::forRuns(const Visit &visit) const {
  const int64_t tokens = context->tokens(), most = fixed.blockTokens;
  for (int64_t start = 0, count; start < tokens; start += count) {
    count =
        runLength(context, start, std::min(tokens, (start / most + 1) * most));
    const int64_t visible = context->positions[start] + int64_t{1};
    for (int64_t head = 0; head < fixed.kvHeads; ++head)
      visit(Run{start, count, head, visible, /*causal=*/true});
  }
}

template <typename Instance> bool SharedPages<Instance>::plan() {
  const int64_t blocks = ceilDiv(context->tokens(), int64_t{fixed.blockTokens});
  const int64_t units = blocks * fixed.kvHeads;
  if (threads == 1 || units >= kUnitsOfThread * threads)
    return false;
  int64_t all = 0, block = 0, ofBlock = 0, largest = 0;
  forRuns([&](const Run &of) QWEN_SPECIALISED_LAMBDA {
    const int64_t pages = of.pages() * of.count;
    ++items;
    all += pages;
    mostPages = std::max(mostPages, of.pages());
    if (of.start / fixed.blockTokens != block)
      ofBlock = 0;
    block = of.start / fixed.blockTokens;
    // Of one head.
    if (of.head == 0)
      ofBlock += pages;
    largest = std::max(largest, ofBlock);
  });
  const int64_t whole = largest * ceilDiv(units, threads) * threads;
  if (whole - all < std::max(all / 8, kLeastGain * threads))
    return false;
  int64_t floats = 0;
  forRuns([&](const Run &of) QWEN_SPECIALISED_LAMBDA {
    floats += stateFloats(queriesOf(of));
  });
  const int64_t room = fixed.room - context->tokens();
  window = std::min(mostPages, room * attention.out.stride / floats);
  return window == mostPages || window >= kLeastWindow;
}

/// Calls visit(item) for each run that has pages in the window from page
/// `first` on. Returns the pages of all.
template <typename Instance>
template <typename Visit>
int64_t SharedPages<Instance>::forItems(int64_t first,
                                        const Visit &visit) const {
  int64_t at = 0;
  float *states = attention.out.of(context->tokens());
  forRuns([&](const Run &of) QWEN_SPECIALISED_LAMBDA {
    const Item item = {
        of, {first, std::min(of.pages(), first + window)}, at, states};
    states += window * stateFloats(queriesOf(of));
    if (item.size() <= 0)
      return;
    at += item.weight();
    visit(item);
  });
  return at;
}

/// Calls copy(from, count, to) for the values of a state of a run, in order,
/// and for their places in the parts of the state of a page.
template <typename Instance>
template <typename Copy>
void SharedPages<Instance>::forParts(const Item &item, int64_t page,
                                     float *state, const Copy &copy) const {
  const int64_t queries = queriesOf(item.run), headDim = fixed.headDim;
  const int64_t each = partQueries(queries);
  const auto from = attention.stateAt(state, queries);
  for (int64_t first = 0; first < queries; first += each) {
    const int64_t count = std::min(each, queries - first);
    const auto to = attention.stateAt(stateAt(item, first / each, page), count);
    copy(from.m + first, count, to.m);
    copy(from.l + first, count, to.l);
    copy(from.o + first * headDim, count * headDim, to.o);
  }
}

/// Computes the pages `part` of an item. Those from its first page on are
/// merged; they are the result if they are all.
template <typename Instance>
template <typename Pages>
void SharedPages<Instance>::compute(const Item &item, const Pages &pages,
                                    Range part) const {
  const auto keep = [&](float *state, int64_t page) QWEN_SPECIALISED_LAMBDA {
    forParts(item, page, state,
             [](const float *from, int64_t count, float *to)
                 QWEN_SPECIALISED_LAMBDA { copyValues(from, count, to); });
  };
  const auto in = attention.begin(item.run);
  const int64_t first = item.pages.begin;
  if (part.begin > 0) {
    for (int64_t page = part.begin; page < part.end; ++page) {
      attention.compute(item.run, pages, first + page, in, in.ofPage);
      keep(in.ofPage, page);
    }
    return;
  }
  if (first > 0)
    forParts(item, 0, in.state,
             [](float *to, int64_t count, const float *from)
                 QWEN_SPECIALISED_LAMBDA { copyValues(from, count, to); });
  attention.mergePages(item.run, pages, {first, first + part.end}, in);
  if (part.end == item.size() && item.isEnd())
    attention.write(item.run, 0, in.queries,
                    attention.stateAt(in.state, in.queries));
  else
    keep(in.state, 0);
}

/// Merges the states of pages from `firstPage` on into the state of the pages
/// before, of one part of the queries.
template <typename Instance>
void SharedPages<Instance>::mergePart(const Item &item, int64_t part,
                                      int64_t firstPage) const {
  const int64_t queries = queriesOf(item.run), each = partQueries(queries);
  const int64_t first = part * each, count = std::min(each, queries - first);
  float *state = stateAt(item, part, 0);
  for (int64_t page = firstPage; page < item.size(); ++page)
    fixed.merge(state, stateAt(item, part, page), count, fixed.headDim, state);
  if (item.isEnd())
    attention.write(item.run, first, count, attention.stateAt(state, count));
}

/// Merges the states of items that several threads have computed. `all` is the
/// number of all pages.
template <typename Instance>
void SharedPages<Instance>::mergeShared(int32_t thread, int64_t first,
                                        int64_t all) const {
  // Calls visit(item, page) for each shared item with the first page that
  // another thread has. `other` is the thread of the page before.
  const auto forShared = [&](const auto &visit) QWEN_SPECIALISED_LAMBDA {
    int32_t other = 0;
    forItems(first, [&](const Item &item) QWEN_SPECIALISED_LAMBDA {
      const auto end = [&]() QWEN_SPECIALISED_LAMBDA {
        return item.pageAt(shareOf(context, other, all).end);
      };
      while (end() == 0)
        ++other;
      const int64_t page = end();
      if (page < item.size())
        visit(item, page);
    });
  };
  const auto partsOf = [&](const Item &item) QWEN_SPECIALISED_LAMBDA {
    const int64_t queries = queriesOf(item.run);
    return ceilDiv(queries, partQueries(queries));
  };
  int64_t units = 0;
  forShared([&](const Item &item, int64_t)
                QWEN_SPECIALISED_LAMBDA { units += partsOf(item); });
  const Range range = shareOf(context, thread, units);
  int64_t unit = 0;
  forShared([&](const Item &item, int64_t page) QWEN_SPECIALISED_LAMBDA {
    for (int64_t part = 0; part < partsOf(item); ++part, ++unit)
      if (range.begin <= unit && unit < range.end)
        mergePart(item, part, page);
  });
}

template <typename Instance>
template <typename PagesOf>
void SharedPages<Instance>::run(int32_t thread, const PagesOf &pagesOf) const {
  // What follows a barrier is the op's time, too.
  const auto wait = [&]() QWEN_SPECIALISED_LAMBDA {
    qwenDriverBarrier(context, thread);
    qwenDriverTrace(context, thread, static_cast<int32_t>(attention.op));
  };
  for (int64_t first = 0; first < mostPages; first += window) {
    if (first > 0)
      wait();
    const int64_t all =
        forItems(first, [](const Item &) QWEN_SPECIALISED_LAMBDA {});
    const Range range = shareOf(context, thread, all);
    forItems(first, [&](const Item &item) QWEN_SPECIALISED_LAMBDA {
      const Range part = item.partOf(range);
      if (part.begin < part.end)
        compute(item, pagesOf(item.run.start, item.run.head), part);
    });
    wait();
    mergeShared(thread, first, all);
  }
}

} // namespace qwen::driver

#endif // QWEN_LIB_CODEGEN_DRIVER_SHAREDPAGES_H
