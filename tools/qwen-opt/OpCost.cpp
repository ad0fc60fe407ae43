//===- OpCost.cpp - What an op of a compiled model costs ------------------===//

#include "OpCost.h"

#include "qwen/CostModel/KernelModel.h"
#include "qwen/Support/Error.h"

using namespace qwen;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

KernelCycles::KernelCycles(const std::string &file, const TargetInfo &target,
                           const std::string &cpu)
    : object(file), target(target), model(target.arch, cpu) {}

std::vector<MachineInstruction>
KernelCycles::codeOf(const KernelInfo &kernel) const {
  const std::string symbol = std::string(kernel.name) + "." + target.name;
  const FunctionCode *code = object.find(symbol);
  if (!code)
    throw Error("the file has no function '" + symbol + "'; compile it again");
  return model.disassemble(code->bytes, code->address);
}

template <typename Compute>
std::optional<double> KernelCycles::cached(const KernelInfo &kernel,
                                           CallSize size, Compute compute) {
  const auto [entry, isNew] = known.try_emplace({kernel.name, size});
  if (isNew)
    try {
      entry->second = compute(codeOf(kernel));
    } catch (const Error &error) {
      failed.emplace(kernel.name, error.what());
    }
  return entry->second;
}

std::optional<double> KernelCycles::ofMac(const KernelInfo &kernel) {
  return cached(kernel, {0}, [&](const auto &code) {
    return 1 /
           modelKernel(model, code, kernel, scheduleOf(kernel)).macsPerCycle();
  });
}

std::optional<double> KernelCycles::ofCall(const KernelInfo &kernel,
                                           CallSize size) {
  return cached(kernel, size, [&](const auto &code) {
    return modelCall(model, code, kernel, size);
  });
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// The kernels of an op that work on a token: of a product those of one token
/// or of many; of a norm that may write hidden rows as well, the first.
static std::vector<const KernelInfo *>
kernelsOf(const TargetInfo &target, const std::vector<size_t> &indices,
          const OpWork &work, bool many) {
  std::vector<const KernelInfo *> products, others;
  for (const size_t index : indices) {
    const KernelInfo *kernel = findKernel(target.kernels[index]);
    if (!kernel)
      throw Error("its kernel '" + target.kernels[index] +
                  "' is none of this version's; compile it again");
    (isLinear(kernel->op) ? products : others).push_back(kernel);
  }
  if (!products.empty())
    others.insert(others.begin(), many ? products.back() : products.front());
  if (work.kind == OpKind::RmsNorm && others.size() > 1)
    others.resize(1);
  return others;
}

/// Values of a token that are read as f32 and written in blocks of int8, each
/// with its scale, and groups, each with its sum.
static int64_t quantizedValues(const OpWork &work) {
  constexpr int64_t group = kGroup * (4 + 1) + 4;
  constexpr int64_t block = kBlockGroups * group + 4;
  return (work.tokenBytes / block * kBlockGroups +
          work.tokenBytes % block / group) *
         kGroup;
}

namespace {
/// Calls of a kernel for each token.
struct Calls {
  CallSize size;
  double number;
};
} // namespace

/// Calls of attention's softmax: of all slots for whole pages, then of those
/// that are seen of the last one.
static std::vector<Calls> softmaxCalls(const ModelShape &shape,
                                       const SequenceStep &step, double pages) {
  const int64_t seen =
      step.tokens == 1 ? step.first % kPageTokens + 1 : kPageTokens / 2;
  const int64_t queries = shape.heads / shape.kvHeads;
  const auto heads = static_cast<double>(shape.kvHeads);
  return {{{kPageTokens, queries}, heads * pages}, {{seen, queries}, heads}};
}

/// Whole pages that a token of a step sees before its own, in the mean.
static double wholePages(const SequenceStep &step) {
  int64_t sum = 0;
  for (int64_t i = 0; i < step.tokens; ++i)
    sum += (step.first + i) / kPageTokens;
  return static_cast<double>(sum) / static_cast<double>(step.tokens);
}

namespace {
/// A token in an op of a step.
struct Token {
  const Manifest &manifest;
  const OpWork &work;
  const SequenceStep &step;

  const ModelShape &shape() const { return manifest.model; }
  /// Rows of the op's result for each token.
  double rows() const {
    return work.wantedTokens ? 1 / static_cast<double>(step.tokens) : 1;
  }
  double heads() const {
    return static_cast<double>(work.kind == OpKind::Append ? shape().kvHeads
                                                           : shape().heads);
  }
};
} // namespace

/// Calls of a kernel for each token. Products have none: their multiplications
/// give their cost.
template <KernelOp Op> static std::vector<Calls> callsOf(const Token &) {
  static_assert(infoOf(Op).provider == KernelProvider::MLIR);
  return {};
}
template <> std::vector<Calls> callsOf<KernelOp::Embed>(const Token &token) {
  return {{{token.shape().hiddenSize}, token.rows()}};
}
template <>
std::vector<Calls> callsOf<KernelOp::RmsNormF32>(const Token &token) {
  return callsOf<KernelOp::Embed>(token);
}
template <>
std::vector<Calls> callsOf<KernelOp::RmsNormQ8>(const Token &token) {
  return callsOf<KernelOp::Embed>(token);
}
template <>
std::vector<Calls> callsOf<KernelOp::RopeTable>(const Token &token) {
  return {{{token.shape().headDim / 2}, token.rows()}};
}
/// Calls that take up to kStackValues of n values.
static std::vector<Calls> blockCalls(int64_t n) {
  const int64_t whole = n / kStackValues, rest = n % kStackValues;
  return {{{kStackValues}, static_cast<double>(whole)},
          {{rest}, rest != 0 ? 1.0 : 0.0}};
}
template <>
std::vector<Calls> callsOf<KernelOp::SigmoidGate>(const Token &token) {
  return blockCalls(token.shape().heads * token.shape().headDim);
}
template <>
std::vector<Calls> callsOf<KernelOp::QuantizeQ8>(const Token &token) {
  if (token.work.kind == OpKind::Gate)
    return callsOf<KernelOp::SigmoidGate>(token);
  return {{{quantizedValues(token.work)}, token.rows()}};
}
template <>
std::vector<Calls> callsOf<KernelOp::SwiGluF32>(const Token &token) {
  return blockCalls(token.shape().intermediateSize);
}
template <> std::vector<Calls> callsOf<KernelOp::SwiGluQ8>(const Token &token) {
  return callsOf<KernelOp::SwiGluF32>(token);
}
template <> std::vector<Calls> callsOf<KernelOp::Hadamard>(const Token &token) {
  return callsOf<KernelOp::SwiGluF32>(token);
}
template <>
std::vector<Calls> callsOf<KernelOp::HadamardQ8>(const Token &token) {
  return callsOf<KernelOp::SwiGluF32>(token);
}
template <> std::vector<Calls> callsOf<KernelOp::Turn>(const Token &token) {
  return {{{token.shape().hiddenSize}, token.rows()}};
}
template <> std::vector<Calls> callsOf<KernelOp::Rope>(const Token &token) {
  return {{{token.shape().headDim / 2}, token.heads()}};
}
template <> std::vector<Calls> callsOf<KernelOp::NormRope>(const Token &token) {
  return callsOf<KernelOp::Rope>(token);
}
template <> std::vector<Calls> callsOf<KernelOp::AppendK>(const Token &token) {
  return {{{token.shape().headDim}, token.heads()}};
}
template <> std::vector<Calls> callsOf<KernelOp::AppendV>(const Token &token) {
  return callsOf<KernelOp::AppendK>(token);
}
template <>
std::vector<Calls> callsOf<KernelOp::FinishAttention>(const Token &token) {
  return callsOf<KernelOp::AppendK>(token);
}
template <>
std::vector<Calls> callsOf<KernelOp::SoftmaxPage>(const Token &token) {
  return softmaxCalls(token.shape(), token.step, wholePages(token.step));
}
template <>
std::vector<Calls> callsOf<KernelOp::MergePage>(const Token &token) {
  const ModelShape &shape = token.shape();
  return {{{shape.headDim, shape.heads / shape.kvHeads},
           static_cast<double>(shape.kvHeads) * wholePages(token.step)}};
}
template <>
std::vector<Calls> callsOf<KernelOp::CheckFinite>(const Token &token) {
  return {{{token.manifest.forward().logits()->stride}, token.rows()}};
}

/// A token has a, b, decay and beta, 4 bytes each.
template <>
std::vector<Calls> callsOf<KernelOp::DeltaGates>(const Token &token) {
  return {{{token.work.tokenBytes / 16}, token.rows()}};
}
template <>
std::vector<Calls> callsOf<KernelOp::ShortConvolution>(const Token &token) {
  const int64_t channels = token.work.macs / kConvolutionTaps;
  return {{{64}, static_cast<double>(channels) / 64}};
}
/// The manifest does not say how many values a key has. A call takes as many
/// cycles for each element of a state with any number of them.
template <>
std::vector<Calls> callsOf<KernelOp::DeltaRule>(const Token &token) {
  constexpr int64_t keyDim = 128;
  const int64_t tokens = std::min(token.step.tokens, kModelledTokens);
  const int64_t macs = 4 * kDeltaColumns * keyDim * tokens;
  return {{{.n = keyDim, .tokens = tokens},
           static_cast<double>(token.work.macs) / static_cast<double>(macs)}};
}

OpCost qwen::costOf(const Manifest &manifest, const TargetInfo &target,
                    size_t op, const SequenceStep &step, KernelCycles &cycles) {
  const ProgramInfo &forward = manifest.forward();
  const OpWork &work = forward.work[op];
  const StepWork moved = workOfStep(work, step);
  const auto tokens = static_cast<double>(step.tokens);
  OpCost cost = {moved.bytes / tokens, moved.macs / tokens, 0.0, {}};
  const auto add = [&](std::optional<double> one, double number) {
    if (!one)
      cost.cycles.reset();
    else if (cost.cycles)
      *cost.cycles += *one * number;
  };
  const auto place = static_cast<size_t>(&target - manifest.targets.data());
  for (const KernelInfo *kernel :
       kernelsOf(target, forward.kernels[place][op], work,
                 step.tokens > 1 && !work.wantedTokens)) {
    cost.kernels.emplace_back(kernel->name);
    if (isLinear(kernel->op))
      add(cycles.ofMac(*kernel), cost.macs);
    else if (kernel->provider() == KernelProvider::MLIR)
      // Each has half of attention's.
      add(cycles.ofMac(*kernel), cost.macs / 2);
    const std::vector<Calls> all =
        visitKernelOp(kernel->op, [&]<KernelOp Op>() {
          return callsOf<Op>({manifest, work, step});
        });
    for (const Calls &calls : all)
      if (calls.number > 0)
        add(cycles.ofCall(*kernel, calls.size), calls.number);
  }
  if (cost.kernels.empty())
    cost.cycles.reset();
  return cost;
}
