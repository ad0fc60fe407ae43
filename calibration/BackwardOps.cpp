//===- BackwardOps.cpp - The backward passes of the ops -------------------===//

#include "calibration/BackwardRules.h"

#include "qwen/ABI/KernelOps.h"
#include "qwen/Numerics/Kernels.h"
#include "qwen/Numerics/Math.h"
#include "qwen/Numerics/Rotation.h"
#include "qwen/Support/Parallel.h"

#include <algorithm>
#include <iterator>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

static MatrixView viewOf(std::span<const float> rows, int64_t tokens) {
  const int64_t width = std::ssize(rows) / tokens;
  return {rows.data(), tokens, width, width};
}

static void setProduct(BackwardPass &pass, mlir::Value input,
                       mlir::FlatSymbolRefAttr weight, mlir::Value result) {
  const unsigned threads = pass.weights.threadCount();
  const ProductSide side = ProductSide::ofRows(
      viewOf(pass.productRows(input, weight), pass.tokens), threads);
  addProduct(side, pass.weights.outputs(weight), pass.make(result).data(),
             widthOf(result), threads);
}

static void runForward(BackwardPass &pass, LinearOp op) {
  for (const auto &[weight, result] :
       llvm::zip_equal(matricesOf(op), op.getResults()))
    setProduct(pass, op.getInput(), weight, result);
}

static void runForward(BackwardPass &pass, LmHeadOp op) {
  setProduct(pass, op.getInput(), op.getWeightAttr(), op.getResult());
}

/// Tells the gradient by `result`, and adds its product with `weight`.
static void addInputGradient(BackwardPass &pass, mlir::Value result,
                             mlir::FlatSymbolRefAttr weight,
                             mlir::Value input) {
  const unsigned threads = pass.weights.threadCount();
  const std::vector<float> &slopes = pass.gradient(result);
  pass.tell({weight.getValue(), slopes, widthOf(result)});
  const ProductSide side =
      ProductSide::ofRows(viewOf(slopes, pass.tokens), threads);
  addProduct(side, pass.weights.columns(weight), pass.gradient(input).data(),
             widthOf(input), threads);
}

static void runBackward(BackwardPass &pass, LinearOp op) {
  for (const auto &[weight, result] :
       llvm::zip_equal(matricesOf(op), op.getResults()))
    addInputGradient(pass, result, weight, op.getInput());
}

static void runBackward(BackwardPass &pass, LmHeadOp op) {
  addInputGradient(pass, op.getResult(), op.getWeightAttr(), op.getInput());
}

//===----------------------------------------------------------------------===//
// Sums and views
//===----------------------------------------------------------------------===//

/// Adds the gradient by `from` to that by `to`, of as many values.
static void passOn(BackwardPass &pass, mlir::Value from, mlir::Value to) {
  const std::vector<float> &read = pass.gradient(from);
  std::vector<float> &sums = pass.gradient(to);
  for (size_t i = 0; i < read.size(); ++i)
    sums[i] += read[i];
}

static void runForward(BackwardPass &pass, AddOp op) {
  const std::span<const float> lhs = pass.rows(op.getLhs()),
                               rhs = pass.rows(op.getRhs());
  std::vector<float> &result = pass.make(op.getResult());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = lhs[i] + rhs[i];
}

static void runBackward(BackwardPass &pass, AddOp op) {
  passOn(pass, op.getResult(), op.getLhs());
  passOn(pass, op.getResult(), op.getRhs());
}

static void runForward(BackwardPass &pass, AddBiasOp op) {
  const std::span<const float> bias = pass.weights.vector(op.getBiasAttr());
  const std::span<const float> input = pass.rows(op.getInput());
  std::vector<float> &result = pass.make(op.getResult());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = input[i] + bias[i % bias.size()];
}

static void runBackward(BackwardPass &pass, AddBiasOp op) {
  passOn(pass, op.getResult(), op.getInput());
}

// A text wants all of its tokens.
static void runForward(BackwardPass &pass, WantedTokensOp op) {
  const std::span<const float> input = pass.rows(op->getOperand(0));
  std::ranges::copy(input, pass.make(op->getResult(0)).begin());
}

static void runBackward(BackwardPass &pass, WantedTokensOp op) {
  passOn(pass, op->getResult(0), op->getOperand(0));
}

//===----------------------------------------------------------------------===//
// Ops of one token
//===----------------------------------------------------------------------===//

/// The values over which a norm takes the mean.
static int64_t normSize(RmsNormOp op) {
  return op.getHeadDim() ? static_cast<int64_t>(*op.getHeadDim())
                         : widthOf(op.getInput());
}

static void runForward(BackwardPass &pass, RmsNormOp op) {
  const std::span<const float> weight = pass.weights.vector(op.getWeightAttr());
  const std::span<const float> input = pass.rows(op.getInput());
  std::vector<float> &result = pass.make(op.getResult());
  const int64_t width = widthOf(op.getInput()), size = normSize(op);
  const auto eps = static_cast<float>(op.getEps().convertToDouble());
  pass.forEachToken([&](int64_t token) {
    for (int64_t i = token * width; i < (token + 1) * width; i += size)
      numerics::rmsNormF32(input.data() + i, weight.data(), size, eps,
                           result.data() + i);
  });
}

static void runBackward(BackwardPass &pass, RmsNormOp op) {
  const std::span<const float> weight = pass.weights.vector(op.getWeightAttr());
  const std::span<const float> input = pass.rows(op.getInput());
  std::vector<float> &to = pass.gradient(op.getInput());
  const std::vector<float> &from = pass.gradient(op.getResult());
  const int64_t width = widthOf(op.getInput()), size = normSize(op);
  const auto eps = static_cast<float>(op.getEps().convertToDouble());
  pass.forEachToken([&](int64_t token) {
    for (int64_t i = token * width; i < (token + 1) * width; i += size)
      gradients::rmsNorm(
          input.subspan(static_cast<size_t>(i), static_cast<size_t>(size)),
          weight.data(), eps, from.data() + i, to.data() + i);
  });
  if (float *sums = pass.normGradient(op.getWeightAttr()))
    for (int64_t i = 0; i < std::ssize(from); i += size)
      gradients::rmsNormWeights(
          input.subspan(static_cast<size_t>(i), static_cast<size_t>(size)), eps,
          from.data() + i, sums);
}

static void runForward(BackwardPass &pass, SwiGluOp op) {
  const std::span<const float> gate = pass.rows(op.getGate()),
                               up = pass.rows(op.getUp());
  std::vector<float> &result = pass.make(op.getResult());
  const int64_t width = widthOf(op.getGate());
  pass.forEachToken([&](int64_t token) {
    numerics::swiGluF32(gate.data() + token * width, up.data() + token * width,
                        width, result.data() + token * width);
  });
}

static void runBackward(BackwardPass &pass, SwiGluOp op) {
  const std::span<const float> gate = pass.rows(op.getGate()),
                               up = pass.rows(op.getUp());
  std::vector<float> &toGate = pass.gradient(op.getGate()),
                     &toUp = pass.gradient(op.getUp());
  const std::vector<float> &from = pass.gradient(op.getResult());
  const int64_t width = widthOf(op.getGate());
  pass.forEachToken([&](int64_t token) {
    const int64_t at = token * width;
    gradients::swiGlu(
        gate.subspan(static_cast<size_t>(at), static_cast<size_t>(width)),
        up.data() + at, from.data() + at, toGate.data() + at, toUp.data() + at);
  });
}

static void runForward(BackwardPass &pass, GateOp op) {
  const std::span<const float> input = pass.rows(op.getInput()),
                               gate = pass.rows(op.getGate());
  std::vector<float> &result = pass.make(op.getResult());
  const int64_t width = widthOf(op.getInput());
  pass.forEachToken([&](int64_t token) {
    const int64_t at = token * width;
    numerics::sigmoidGate(input.data() + at, gate.data() + at, width,
                          result.data() + at);
  });
}

static void runBackward(BackwardPass &pass, GateOp op) {
  const std::span<const float> input = pass.rows(op.getInput()),
                               gate = pass.rows(op.getGate());
  std::vector<float> &to = pass.gradient(op.getInput()),
                     &toGate = pass.gradient(op.getGate());
  const std::vector<float> &from = pass.gradient(op.getResult());
  const int64_t width = widthOf(op.getInput());
  pass.forEachToken([&](int64_t token) {
    const int64_t at = token * width;
    gradients::gate(
        input.subspan(static_cast<size_t>(at), static_cast<size_t>(width)),
        gate.data() + at, from.data() + at, to.data() + at, toGate.data() + at);
  });
}

static void runForward(BackwardPass &pass, HadamardOp op) {
  const std::span<const float> input = pass.rows(op.getInput());
  std::vector<float> &result = pass.make(op.getResult());
  const int64_t width = widthOf(op.getInput());
  pass.forEachToken([&](int64_t token) {
    numerics::hadamard(input.data() + token * width, width,
                       result.data() + token * width);
  });
}

static void runBackward(BackwardPass &pass, HadamardOp op) {
  std::vector<float> &to = pass.gradient(op.getInput());
  const std::vector<float> &from = pass.gradient(op.getResult());
  const int64_t width = widthOf(op.getInput());
  pass.forEachToken([&](int64_t token) {
    gradients::hadamard(
        {from.data() + token * width, static_cast<size_t>(width)},
        to.data() + token * width);
  });
}

/// Adds the rows of `from`, turned or turned back, to the rows of `to`.
static void addTurned(const BackwardPass &pass, std::span<const float> from,
                      bool isBack, std::span<float> to) {
  const int64_t width = std::ssize(to) / pass.tokens;
  const numerics::Rotation rotation(width);
  pass.forEachToken([&](int64_t token) {
    const float *row = from.data() + token * width;
    std::vector<double> turned(row, row + width);
    if (isBack)
      rotation.turnBack(turned.data());
    else
      rotation.turn(turned.data());
    for (int64_t i = 0; i < width; ++i)
      to[static_cast<size_t>(token * width + i)] +=
          static_cast<float>(turned[static_cast<size_t>(i)]);
  });
}

static void runForward(BackwardPass &pass, TurnOp op) {
  const std::span<const float> input = pass.rows(op.getInput());
  addTurned(pass, input, op.getBack(), pass.make(op.getResult()));
}

static void runBackward(BackwardPass &pass, TurnOp op) {
  std::vector<float> &to = pass.gradient(op.getInput());
  addTurned(pass, pass.gradient(op.getResult()), !op.getBack(), to);
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

static void runForward(BackwardPass &pass, RopeTableOp op) {
  const std::span<const float> frequencies =
      pass.weights.vector(op.getFrequenciesAttr());
  const int64_t half = widthOf(op.getCos());
  std::vector<float> &sin = pass.make(op.getSin()),
                     &cos = pass.make(op.getCos());
  pass.forEachToken([&](int64_t token) {
    numerics::ropeTable(static_cast<int32_t>(token % pass.window),
                        frequencies.data(), half, cos.data() + token * half,
                        sin.data() + token * half);
  });
  if (const std::optional<llvm::APFloat> scale = op.getScale())
    for (std::vector<float> *values : {&sin, &cos})
      for (float &value : *values)
        value *= scale->convertToFloat();
}

/// Calls `work` for each head of each token: where its values, its cos and sin
/// begin, and half of the values that are rotated.
template <typename Work>
static void forEachHead(BackwardPass &pass, RopeOp op, const Work &work) {
  const std::span<const float> cos = pass.rows(op.getCos()),
                               sin = pass.rows(op.getSin());
  const int64_t width = widthOf(op.getInput()), half = widthOf(op.getCos());
  pass.forEachToken([&](int64_t token) {
    for (int64_t i = token * width; i < (token + 1) * width;
         i += op.getHeadSize())
      work(i, cos.data() + token * half, sin.data() + token * half, half);
  });
}

static void runForward(BackwardPass &pass, RopeOp op) {
  const std::span<const float> input = pass.rows(op.getInput());
  std::vector<float> &result = pass.make(op.getResult());
  std::ranges::copy(input, result.begin());
  forEachHead(
      pass, op,
      [&](int64_t at, const float *cos, const float *sin, int64_t half) {
        numerics::rope(input.data() + at, cos, sin, half, result.data() + at);
      });
}

static void runBackward(BackwardPass &pass, RopeOp op) {
  std::vector<float> &to = pass.gradient(op.getInput());
  const std::vector<float> &from = pass.gradient(op.getResult());
  const int64_t size = op.getHeadSize();
  forEachHead(
      pass, op,
      [&](int64_t at, const float *cos, const float *sin, int64_t half) {
        gradients::rope(cos, sin, half, from.data() + at, to.data() + at);
        for (int64_t i = at + 2 * half; i < at + size; ++i)
          to[static_cast<size_t>(i)] += from[static_cast<size_t>(i)];
      });
}

// Nothing learns the positions.
static void runBackward(BackwardPass & /*pass*/, RopeTableOp /*op*/) {}

/// Calls `work` for each head of keys and values of each window: its first
/// token and its number. They run on all threads.
static void
forEachKvHead(const BackwardPass &pass, AttentionOp op,
              const std::function<void(int64_t token, int64_t head)> &work) {
  const auto heads = static_cast<size_t>(op.getKvHeads());
  parallelFor(static_cast<size_t>(pass.tokens / pass.window) * heads,
              pass.weights.threadCount(), [&](size_t i, unsigned) {
                work(static_cast<int64_t>(i / heads) * pass.window,
                     static_cast<int64_t>(i % heads));
              });
}

namespace {
/// What attention reads: queries, keys and values.
struct AttentionInputs {
  explicit AttentionInputs(AttentionOp op)
      : size(op.getHeadDim()), width(widthOf(op.getQueries())),
        narrow(widthOf(op.getAppend().getKeys())),
        group(static_cast<int64_t>(op.getHeads() / op.getKvHeads())),
        values{op.getQueries(), op.getAppend().getKeys(),
               op.getAppend().getValues()} {}

  /// A head of rows of queries, and of keys or values.
  template <typename T>
  gradients::HeadRows<T> query(T *rows, int64_t token, int64_t head) const {
    return headRows(rows, width, token, head * size);
  }
  template <typename T>
  gradients::HeadRows<T> key(T *rows, int64_t token, int64_t head) const {
    return headRows(rows, narrow, token, head * size);
  }

  /// Values of a head, and of the rows of queries and of keys.
  int64_t size, width, narrow;
  /// Heads of queries that share keys and values.
  int64_t group;
  mlir::Value values[3];
};
} // namespace

static void runForward(BackwardPass &pass, AttentionOp op) {
  const AttentionInputs inputs(op);
  const float *read[3];
  for (int i = 0; i < 3; ++i)
    read[i] = pass.rows(inputs.values[i]).data();
  std::vector<float> &result = pass.make(op.getResult());
  forEachKvHead(pass, op, [&](int64_t token, int64_t head) {
    gradients::CausalAttention attention(pass.window, inputs.size);
    for (int64_t j = head * inputs.group; j < (head + 1) * inputs.group; ++j)
      attention.run({inputs.query(read[0], token, j),
                     inputs.key(read[1], token, head),
                     inputs.key(read[2], token, head)},
                    inputs.query(result.data(), token, j));
  });
}

// The heads that share keys and values add to their gradients one after
// another.
static void runBackward(BackwardPass &pass, AttentionOp op) {
  const AttentionInputs inputs(op);
  const std::vector<float> &from = pass.gradient(op.getResult());
  const float *read[3];
  float *write[3];
  for (int i = 0; i < 3; ++i) {
    read[i] = pass.rows(inputs.values[i]).data();
    write[i] = pass.gradient(inputs.values[i]).data();
  }
  forEachKvHead(pass, op, [&](int64_t token, int64_t head) {
    gradients::CausalAttention attention(pass.window, inputs.size);
    for (int64_t j = head * inputs.group; j < (head + 1) * inputs.group; ++j)
      attention.add(
          {inputs.query(read[0], token, j), inputs.key(read[1], token, head),
           inputs.key(read[2], token, head)},
          inputs.query(from.data(), token, j),
          {inputs.query(write[0], token, j), inputs.key(write[1], token, head),
           inputs.key(write[2], token, head)});
  });
}

// The attention that reads the cache has the gradients by keys and values.
static void runBackward(BackwardPass & /*pass*/, AppendOp /*op*/) {}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

template <typename Op> static constexpr BackwardOp rowOf() {
  BackwardOp row = {Op::getOperationName(), nullptr,
                    [](BackwardPass &pass, mlir::Operation *op) {
                      runBackward(pass, llvm::cast<Op>(op));
                    }};
  if constexpr (requires(BackwardPass &pass, Op op) { runForward(pass, op); })
    row.forward = [](BackwardPass &pass, mlir::Operation *op) {
      runForward(pass, llvm::cast<Op>(op));
    };
  return row;
}

static constexpr BackwardOp kBackwardOps[] = {rowOf<AddBiasOp>(),
                                              rowOf<AddOp>(),
                                              rowOf<AppendOp>(),
                                              rowOf<AttentionOp>(),
                                              rowOf<DeltaGatesOp>(),
                                              rowOf<DeltaRuleOp>(),
                                              rowOf<ExpertsDownOp>(),
                                              rowOf<ExpertsUpOp>(),
                                              rowOf<GateOp>(),
                                              rowOf<HadamardOp>(),
                                              rowOf<LinearOp>(),
                                              rowOf<LmHeadOp>(),
                                              rowOf<RmsNormOp>(),
                                              rowOf<RopeOp>(),
                                              rowOf<RopeTableOp>(),
                                              rowOf<RouteOp>(),
                                              rowOf<ShortConvolutionOp>(),
                                              rowOf<SwiGluOp>(),
                                              rowOf<TurnOp>(),
                                              rowOf<WantedTokensOp>()};

const BackwardOp *qwen::findBackward(mlir::Operation *op) {
  // Attention without a cache is of encoders, which are not calibrated.
  if (auto attention = llvm::dyn_cast<AttentionOp>(op);
      attention && !attention.getAppend())
    return nullptr;
  // No graph has the gates of experts apart.
  if (auto up = llvm::dyn_cast<ExpertsUpOp>(op); up && up.getGates())
    return nullptr;
  const auto *found = llvm::find_if(kBackwardOps, [&](const BackwardOp &row) {
    return row.name == op->getName().getStringRef();
  });
  return found == std::end(kBackwardOps) ? nullptr : found;
}
