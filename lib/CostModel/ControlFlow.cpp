//===- ControlFlow.cpp - Loops of a function ------------------------------===//

#include "ControlFlow.h"

#include "qwen/Support/Error.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace qwen;

/// Maximum number of instructions of a function; the largest kernel has 6,000.
/// The memory for loops is quadratic in it.
static constexpr size_t kMostInstructions = 1 << 15;

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

ControlFlow::ControlFlow(llvm::ArrayRef<MachineInstruction> body)
    : instructions(body), successors(body.size()) {
  if (body.size() > kMostInstructions)
    throw Error("a function of " + std::to_string(body.size()) +
                " instructions is no kernel");
  llvm::DenseMap<uint64_t, size_t> index;
  for (const auto &[i, instruction] : llvm::enumerate(body))
    index[instruction.address] = i;
  std::vector<llvm::SmallVector<size_t, 2>> predecessors(body.size());
  for (const auto &[i, instruction] : llvm::enumerate(body)) {
    if (instruction.target)
      if (const auto to = index.find(*instruction.target); to != index.end())
        successors[i].push_back(to->second);
    if (instruction.fallsThrough && i + 1 < body.size())
      successors[i].push_back(i + 1);
    for (size_t to : successors[i])
      predecessors[to].push_back(i);
  }
  // Leaves out padding between aligned addresses.
  const llvm::BitVector alive = reachable(0, llvm::BitVector(body.size()));
  for (size_t head = 0; head < body.size(); ++head) {
    // The call is another predecessor of the first instruction.
    if (predecessors[head].size() + (head == 0 ? 1 : 0) < 2)
      continue;
    // The loop has all instructions that lead back to the head and that only
    // the head leads to.
    llvm::BitVector without(body.size());
    without.set(head);
    const llvm::BitVector before = reachable(0, without);
    llvm::BitVector loop(body.size());
    loop.set(head);
    llvm::SmallVector<size_t> todo;
    for (size_t from : predecessors[head])
      if (alive.test(from) && !before.test(from))
        todo.push_back(from);
    const bool closed = !todo.empty();
    while (!todo.empty()) {
      const size_t i = todo.pop_back_val();
      if (loop.test(i))
        continue;
      loop.set(i);
      for (size_t from : predecessors[i])
        if (alive.test(from))
          todo.push_back(from);
    }
    if (closed)
      inside.emplace(head, std::move(loop));
  }
}

llvm::BitVector ControlFlow::reachable(size_t from,
                                       const llvm::BitVector &without) const {
  llvm::BitVector seen(instructions.size());
  llvm::SmallVector<size_t> todo;
  if (from < instructions.size())
    todo.push_back(from);
  while (!todo.empty()) {
    const size_t i = todo.pop_back_val();
    if (seen.test(i) || without.test(i))
      continue;
    seen.set(i);
    todo.append(successors[i].begin(), successors[i].end());
  }
  return seen;
}

bool ControlFlow::isNested(size_t inner, size_t outer) const {
  return inner != outer && inside.at(outer).test(inner) &&
         !inside.at(inner).test(outer);
}

std::vector<size_t> ControlFlow::around(size_t loop) const {
  std::vector<size_t> outer;
  for (const auto &[head, body] : inside)
    if (isNested(loop, head))
      outer.push_back(head);
  llvm::sort(outer, [&](size_t a, size_t b) {
    return inside.at(a).count() < inside.at(b).count();
  });
  return outer;
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

/// One pass of a loop, or a call of the function.
class ControlFlow::Walk {
public:
  Walk(const ControlFlow &flow, std::optional<size_t> outer,
       const std::map<size_t, int64_t> &counts)
      : flow(flow), outer(outer), counts(counts),
        missing(flow.instructions.size()) {
    for (const auto &[head, body] : flow.inside)
      if (!outer || flow.isNested(head, *outer))
        passes[head] = 0;
    for (const auto &[head, count] : counts)
      missing.set(head);
  }

  Trace run() {
    Trace trace;
    const size_t first = outer.value_or(0);
    size_t last = first;
    for (std::optional<size_t> at = first; at; at = next(last)) {
      if (!trace.empty() && at == outer)
        break;
      enter(*at, last);
      trace.push_back(&flow.instructions[*at]);
      if (trace.size() > kLongestTrace)
        throw Error("the code at address 0x" +
                    llvm::utohexstr(flow.instructions[first].address, true) +
                    " does not come to its end");
      last = *at;
    }
    return trace;
  }

private:
  /// Counts a pass of the loop if `at` is its head.
  void enter(size_t at, size_t last) {
    const auto pass = passes.find(at);
    if (pass == passes.end())
      return;
    if (!flow.contains(at, last))
      pass->second = 0;
    ++pass->second;
    missing.reset(at);
  }

  /// The innermost loop in the outer one that contains an instruction.
  std::optional<size_t> innermost(size_t at) const {
    std::optional<size_t> result;
    for (const auto &[head, count] : passes)
      if (flow.contains(head, at) && (!result || flow.isNested(head, *result)))
        result = head;
    return result;
  }

  /// The next instruction; none behind a return.
  std::optional<size_t> next(size_t at) const {
    llvm::SmallVector<size_t, 2> ways;
    for (size_t to : flow.successors[at])
      if (!outer || flow.contains(*outer, to))
        ways.push_back(to);
    if (ways.empty() && outer)
      throw Error("a loop has no way back to its head");
    if (ways.empty())
      return std::nullopt;
    if (ways.size() == 1)
      return ways.front();
    const std::optional<size_t> inner = innermost(at);
    if (inner) {
      const bool first = flow.contains(*inner, ways[0]);
      if (first != flow.contains(*inner, ways[1])) {
        const auto count = counts.find(*inner);
        // A test at the start of the loop is passed once more than its body.
        const bool isLatch = ways[first ? 0 : 1] == *inner;
        const int64_t wanted =
            (count == counts.end() ? 1 : count->second) + (isLatch ? 0 : 1);
        const bool done = passes.at(*inner) >= wanted;
        return ways[first == done ? 1 : 0];
      }
    }
    return choose(at, ways, inner);
  }

  size_t choose(size_t at, llvm::ArrayRef<size_t> ways,
                std::optional<size_t> inner) const {
    llvm::BitVector heads(flow.instructions.size());
    if (outer)
      heads.set(*outer);
    if (inner)
      heads.set(*inner);
    llvm::SmallVector<size_t, 2> through;
    for (size_t to : ways)
      if (missing.none() || flow.reachable(to, heads).anyCommon(missing))
        through.push_back(to);
    if (through.empty())
      through.assign(ways.begin(), ways.end());
    return llvm::is_contained(through, at + 1) ? at + 1 : through.front();
  }

  const ControlFlow &flow;
  const std::optional<size_t> outer;
  const std::map<size_t, int64_t> &counts;
  /// Passes of each loop that is walked since it was entered.
  std::map<size_t, int64_t> passes;
  /// Heads of `counts` that were not reached yet.
  llvm::BitVector missing;
};

Trace ControlFlow::execute(std::optional<size_t> outer,
                           const std::map<size_t, int64_t> &counts) const {
  return Walk(*this, outer, counts).run();
}
