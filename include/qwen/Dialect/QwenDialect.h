//===- QwenDialect.h - The qwen dialect -------------------------*- C++ -*-===//
//
// The dialect's classes, generated from the .td files of this folder.
//
//===----------------------------------------------------------------------===//

#ifndef QWEN_DIALECT_QWENDIALECT_H
#define QWEN_DIALECT_QWENDIALECT_H

#include "qwen/ABI/Caches.h"
#include "qwen/ABI/DriverABI.h"
#include "qwen/ABI/ElementMaps.h"
#include "qwen/ABI/KernelTable.h"
#include "qwen/ABI/OpWork.h"
#include "qwen/ABI/Program.h"
#include "qwen/Weights/WeightSource.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <string>

#include "qwen/Dialect/QwenDialect.h.inc"
#include "qwen/Dialect/QwenEnums.h.inc"

namespace qwen {
llvm::hash_code hash_value(CpuFeatureSet features);
} // namespace qwen

#include "qwen/Dialect/QwenAttrInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "qwen/Dialect/QwenAttributes.h.inc"

namespace qwen {
/// The count of types that name none, and the one of the tokens whose logits
/// are wanted.
inline constexpr char kAllName[] = "all", kWantedName[] = "wanted";
/// The most letters of a count's name.
inline constexpr size_t kMaxCountName = 32;

/// What the first dimension of `type` counts; null of `all`.
CountAttr countOf(mlir::Type type);
inline CountAttr countOf(mlir::Value value) { return countOf(value.getType()); }
/// The name of a count; `all` of null.
llvm::StringRef nameOf(CountAttr count);
/// The count of that name; null of `all`.
CountAttr countNamed(mlir::MLIRContext *context, llvm::StringRef name);

/// Whether `type` is tensor<?xi32>, of any count. So it is of the types below.
bool isTokenIntegers(mlir::Type type);
/// Whether `type` is tensor<?xNxf32>, N from 1 to kMaxDimension.
bool isFloatActivations(mlir::Type type);
/// Whether `type` is tensor<?xNxi8, #qwen.blocks<128>>, N likewise.
bool isQuantizedActivations(mlir::Type type);
/// Whether `type` is tensor<Nxi32>, N likewise: integers that all tokens share.
bool isIntegers(mlir::Type type);
/// Whether `type` is tensor<?xExi32>, E likewise: an integer for each choice, a
/// token and one of its E experts.
bool isChoiceIntegers(mlir::Type type);
/// Whether `type` is tensor<?xExNxf32>, or tensor<?xExNxi8, #qwen.blocks<128>>:
/// activations of each choice, in the order of experts.
bool isExpertActivations(mlir::Type type);
/// Whether the values of `type` are quantized.
bool isInBlocks(mlir::Type type);

/// Activations and weights have dimensions up to this, so that no product of
/// two of them and a few bytes overflows.
inline constexpr int64_t kMaxDimension = int64_t{1} << 28;

/// A model has up to this many layers, as in the manifest.
inline constexpr int64_t kMaxLayers = 65536;

/// Whether a number is positive and finite, as f32 too.
bool isPositive(const llvm::APFloat &value);

/// The caches as a side-effect resource.
struct CacheResource : mlir::SideEffects::Resource::Base<CacheResource> {
  mlir::StringRef getName() final { return "Cache"; }
};

// Attributes of the module. QwenDialect::verifyOperationAttribute checks type
// and range of each.

/// The name of the Stage that the module has reached.
inline constexpr char kStageAttr[] = "qwen.stage";
/// Bytes of the model's weight image, i64. A qwen.image has its own.
inline constexpr char kWeightBytesAttr[] = "qwen.weight_bytes";
/// The target's CPU features, a FeaturesAttr.
inline constexpr char kTargetFeaturesAttr[] = "qwen.target_features";

// Attributes of a program, which is a function.

/// The most that a call has of each count: a dictionary of i64 from 1 to
/// kMostTokens.
inline constexpr char kLimitsAttr[] = "qwen.limits";

/// The facts of its model, a dictionary (the manifest's "programs[i].model").
inline constexpr char kModelAttr[] = "qwen.model";
/// Tokens that a sequence can step back without a snapshot of its fixed state,
/// i64 from 0 to kMostStepBack; 0 without the attribute.
inline constexpr char kStepBackAttr[] = "qwen.step_back";
/// Bytes of the arena, i64.
inline constexpr char kArenaBytesAttr[] = "qwen.arena_bytes";
/// Names of the program's ops by their plan's id, an array of strings (the
/// manifest's "ops"). qwen-lower sets this and the following ones.
inline constexpr char kOpsAttr[] = "qwen.ops";
/// The name of the first argument's count, then the names of the program's own
/// counts (ownCounts), an array of strings.
inline constexpr char kCountsAttr[] = "qwen.counts";
/// The caches that these ops use, an array of dictionaries (the manifest's
/// "caches").
inline constexpr char kCachesAttr[] = "qwen.caches";
/// The work of these ops, an array of dictionaries (the manifest's "work").
inline constexpr char kWorkAttr[] = "qwen.work";
/// The kernels of these ops, an array of arrays of KernelAttr (the manifest's
/// "kernels").
inline constexpr char kOpKernelsAttr[] = "qwen.op_kernels";
/// The arguments and results of a program (ProgramValue), arrays of
/// dictionaries (the manifest's "inputs" and "outputs").
inline constexpr char kInputsAttr[] = "qwen.inputs";
inline constexpr char kOutputsAttr[] = "qwen.outputs";

// Attributes of arguments and results of a program. An argument is ids or
// positions of the tokens of the call, or activations in f32. A result is the
// logits of the wanted tokens, or activations, which stay in the arena.

/// The name of activations, a string.
inline constexpr char kNameAttr[] = "qwen.name";
/// The program before that leaves an argument in the arena, as its result of
/// the same name; a symbol. Without it, the caller gives the argument.
inline constexpr char kFromAttr[] = "qwen.from";
/// The place of an argument, a BufferAttr. qwen-plan sets it.
inline constexpr char kPlaceAttr[] = "qwen.place";

/// Name of the first program of a model, which gives its results.
inline constexpr char kForwardName[] = "forward";

/// The index of `image` in Context::images: 0 of null, which is the model's,
/// and then each qwen.image in the order of the module.
int64_t indexOf(mlir::ModuleOp module, mlir::FlatSymbolRefAttr image);

/// The programs of a module in order: its public functions with a body.
llvm::SmallVector<mlir::func::FuncOp> programsOf(mlir::ModuleOp module);

/// The most that a call of `program` has of a count; none if it has no limit.
std::optional<int64_t> limitOf(mlir::func::FuncOp program,
                               llvm::StringRef name);
inline std::optional<int64_t> limitOf(mlir::func::FuncOp program,
                                      CountAttr count) {
  return limitOf(program, nameOf(count));
}
/// Sets that limit of the count `name`.
void setLimit(mlir::func::FuncOp program, llvm::StringRef name, int64_t most);
/// What the first argument of `program` counts: the tokens of a call.
CountAttr tokensOfCall(mlir::func::FuncOp program);
/// The counts of `program` beside those that every call has, in the order of
/// their indices in Context::counts, from kFirstOwnCount on.
llvm::SmallVector<mlir::StringAttr> ownCounts(mlir::func::FuncOp program);
/// The index of a count in Context::counts of a call of `program`; none of one
/// that has no limit.
std::optional<int64_t> indexOf(mlir::func::FuncOp program, CountAttr count);

//===----------------------------------------------------------------------===//
// What ForwardOp says of an op
//===----------------------------------------------------------------------===//

/// A kind of kernel that an op calls, and its calls. With `gemm`, the kernel is
/// for many tokens at once and takes the calls of the one before it. The
/// indices of kernels in `calls` are 0: workOf sets them.
struct KernelUse {
  KernelOp kind;
  bool gemm = false;
  llvm::SmallVector<KernelCalls, 2> calls = {};
};

/// How an op reads a weight: all of a matrix, the row of a token's id, or a
/// vector.
enum class WeightRole : uint8_t { Matrix, Gathered, Vector };

/// The experts whose matrices are one after another the outputs of a weight.
struct ExpertsUse {
  int64_t count = 0;
  /// The number of experts that a token reads.
  int64_t active = 0;
  /// What chooses them. Parts of one choice lie expert by expert.
  mlir::Value choice = {};
};

/// Weights that an op reads as one part of an image.
struct WeightUse {
  /// Names of qwen.weight ops.
  mlir::ArrayAttr segments;
  WeightRole role;
  /// The outputs that each segment must have; dynamic if the op takes any.
  llvm::SmallVector<int64_t> outputs;
  /// The values along K that matrices must have.
  int64_t k = 0;
  /// None of a matrix that all tokens read.
  std::optional<ExpertsUse> experts = {};
};

/// The cache that an op reads or writes. Uses with the same name and layer mean
/// the same bytes.
struct CacheUse {
  CacheKind kind;
  llvm::StringRef name;
  int64_t layer;
  /// Paged: bytes of a position, 0 before the cache has a format. Fixed: bytes
  /// of a state.
  int64_t bytes;
  bool reads, writes;
  /// The format of keys and values, which qwen-quantize chooses.
  std::optional<KvFormat> format = {};
};

class ForwardOp;
class ViewOp;

/// Where the cache of an op lies: bytes from one page or one state to the next,
/// and from there to the layer.
struct CachePlace {
  CacheId cache;
  Bytes stride;
  CacheOffset layer;
  Tokens stepBack;
};

/// ProductInstance with the kernels from the largest M to 1.
struct ProductPlan {
  /// A kernel and the tokens that it should multiply.
  struct Tile {
    const KernelInfo *kernel;
    TokenTiles tokens;
  };
  Length cached;
  Panels least;
  Length reused;
  Panels together;
  llvm::SmallVector<Tile> tiles;
};

/// The facts about a call that its op lacks: the places of parts and caches,
/// and the schedules of kernels.
class CallFacts {
public:
  virtual ~CallFacts() = default;
  virtual WeightPlace partAt(mlir::FlatSymbolRefAttr part) const = 0;
  /// Bytes from an expert to the next in a part.
  virtual Bytes strideOf(mlir::FlatSymbolRefAttr part) const = 0;
  virtual CachePlace cacheOf(ForwardOp op) const = 0;
  virtual ProductPlan productOf(const KernelInfo &gemv,
                                const KernelInfo &gemm) const = 0;
  /// Tokens of a unit of attention with `groupQueries` queries a token.
  virtual Tokens blockTokens(const KernelInfo &scores,
                             int64_t groupQueries) const = 0;
};

/// Fields of a struct of the driver, in their order.
using StructFields = llvm::SmallVector<mlir::NamedAttribute>;

/// A call of a driver function: the arguments of one op, and the fields that
/// its instance fixes for all ops that share it.
struct DriverCall {
  /// What the instance is called, if no other one is called so.
  std::string name;
  std::string function;
  StructFields arguments, fixed;
};

namespace detail {
/// Whether one of `uses` is of matrices that the op multiplies.
bool hasMatrices(llvm::ArrayRef<WeightUse> uses);
/// Checks that all values of `op` count the same.
mlir::LogicalResult verifyCounts(mlir::Operation *op);
/// Checks what the values of `op` count, its kernels and its plan.
mlir::LogicalResult verifyForwardOp(ForwardOp op);
/// Checks that `op` is a view of tokens that its operand has.
mlir::LogicalResult verifyViewOp(ViewOp op);
/// Checks that `symbol` is a weight of `shape`, in which a dynamic size stands
/// for any.
mlir::LogicalResult verifyWeight(mlir::Operation *op,
                                 mlir::SymbolTableCollection &symbols,
                                 mlir::FlatSymbolRefAttr symbol,
                                 llvm::ArrayRef<int64_t> shape);
/// Checks the weights of `op`, and the parts of the image that hold them.
mlir::LogicalResult verifyWeightUses(ForwardOp op,
                                     mlir::SymbolTableCollection &symbols);
} // namespace detail
} // namespace qwen

#include "qwen/Dialect/QwenInterfaces.h.inc"

#define GET_OP_CLASSES
#include "qwen/Dialect/QwenOps.h.inc"

namespace qwen {
/// The matrices that `op` multiplies its input by, and those whose rows it
/// gathers.
llvm::SmallVector<mlir::FlatSymbolRefAttr> matricesOf(ForwardOp op);

/// The product whose input `use` is, or null.
ForwardOp productOf(mlir::OpOperand &use);

/// Whether `op` uses keys and values that have no format yet.
bool lacksFormat(ForwardOp op);

/// How `op` uses the residual stream.
StreamUse streamUseOf(mlir::Operation *op);

/// The SwiGLU that alone reads the results of `product` and quantizes its own:
/// a driver may compute both at once. Null if there is none.
SwiGluOp gateOf(LinearOp product);
/// The product whose gateOf() is `gate`, or null.
LinearOp gatedProduct(SwiGluOp gate);

/// The kernel of `kind` that `op` has; null before qwen-select-kernels.
const KernelInfo *kernelOf(ForwardOp op, KernelOp kind);

/// What `op` runs on: what its values count.
CountAttr runsOn(ForwardOp op);

/// Whether `value` has tokens that its user must gather.
bool isSelected(mlir::Value value);

/// The number of values of a token, or of a choice, in `activations`, or of
/// integers.
int64_t widthOf(mlir::Value activations);

/// The type of `sizes` values, f32 by default, for each token of `value`.
mlir::RankedTensorType typeLike(mlir::Value value,
                                llvm::ArrayRef<int64_t> sizes,
                                mlir::Type element = {});

/// The choices of a token in activations of experts; 1 of other values.
int64_t choicesOfToken(mlir::Value value);

/// What `value` is a view of, or `value` itself.
mlir::Value rootOf(mlir::Value value);

/// Where a planned value lies, or null.
BufferAttr bufferOf(mlir::Value value);

/// What `program` returns under `name`, or null.
mlir::Value namedResult(mlir::func::FuncOp program, mlir::StringAttr name);

/// The attribute of a fact of a table (Fact.h).
mlir::Attribute attributeOf(mlir::Builder &builder, int64_t value);
mlir::Attribute attributeOf(mlir::Builder &builder, double value);
mlir::Attribute attributeOf(mlir::Builder &builder, bool value);
} // namespace qwen

#endif // QWEN_DIALECT_QWENDIALECT_H
