//===- LowerFunctions.cpp - Functions between forward and kernels ---------===//

#include "LowerFunctions.h"

#include "qwen/ABI/KernelABI.h"

#include <type_traits>

using namespace qwen;

//===----------------------------------------------------------------------===//
// Text shared by all functions
//===----------------------------------------------------------------------===//

/// What the other functions are made of; LLVM inlines it. Fields of Context are
/// numbered in units of 8 bytes.
static constexpr std::string_view kCommon = R"mlir(
func.func private @field(%context: !llvm.ptr, %index: i64) -> i64 {
  %at = llvm.getelementptr %context[%index] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %value = llvm.load %at : !llvm.ptr -> i64
  return %value : i64
}
func.func private @pointer(%context: !llvm.ptr, %index: i64) -> !llvm.ptr {
  %at = llvm.getelementptr %context[%index] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %value = llvm.load %at : !llvm.ptr -> !llvm.ptr
  return %value : !llvm.ptr
}
func.func private @bytes(%base: !llvm.ptr, %offset: i64) -> !llvm.ptr {
  %at = llvm.getelementptr %base[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  return %at : !llvm.ptr
}
// Row `row` of values of 4 bytes.
func.func private @row(%base: !llvm.ptr, %row: i64, %stride: i64) -> !llvm.ptr {
  %element = arith.muli %row, %stride : i64
  %at = llvm.getelementptr %base[%element] : (!llvm.ptr, i64) -> !llvm.ptr, i32
  return %at : !llvm.ptr
}
// Row `row` of quantized values.
func.func private @row_i8(%base: !llvm.ptr, %row: i64, %stride: i64) -> !llvm.ptr {
  %element = arith.muli %row, %stride : i64
  %at = llvm.getelementptr %base[%element] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  return %at : !llvm.ptr
}
// Element `index` of an array of int32 that Context points to.
func.func private @element(%context: !llvm.ptr, %field: i64, %index: i64) -> i32 {
  %array = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  %at = llvm.getelementptr %array[%index] : (!llvm.ptr, i64) -> !llvm.ptr, i32
  %value = llvm.load %at : !llvm.ptr -> i32
  return %value : i32
}
func.func private @arena(%context: !llvm.ptr, %place: i64) -> !llvm.ptr {
  %field = arith.constant ${arena} : i64
  %base = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  %at = func.call @bytes(%base, %place) : (!llvm.ptr, i64) -> !llvm.ptr
  return %at : !llvm.ptr
}
// The arena at `place`, or null where that is -1.
func.func private @optional_arena(%context: !llvm.ptr, %place: i64) -> !llvm.ptr {
  %c0 = arith.constant 0 : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %given = func.call @arena(%context, %place) : (!llvm.ptr, i64) -> !llvm.ptr
  %absent = arith.cmpi slt, %place, %c0 : i64
  %at = arith.select %absent, %null, %given : !llvm.ptr
  return %at : !llvm.ptr
}
// The weight image at `offset`, or null where that is -1.
func.func private @weights(%context: !llvm.ptr, %offset: i64) -> !llvm.ptr {
  %c0 = arith.constant 0 : i64
  %field = arith.constant ${weights} : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %base = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  %given = func.call @bytes(%base, %offset) : (!llvm.ptr, i64) -> !llvm.ptr
  %absent = arith.cmpi slt, %offset, %c0 : i64
  %at = arith.select %absent, %null, %given : !llvm.ptr
  return %at : !llvm.ptr
}
func.func private @tokens(%context: !llvm.ptr) -> i64 {
  %field = arith.constant ${tokens} : i64
  %value = func.call @field(%context, %field) : (!llvm.ptr, i64) -> i64
  return %value : i64
}
func.func private @rows(%context: !llvm.ptr) -> i64 {
  %field = arith.constant ${rows} : i64
  %value = func.call @field(%context, %field) : (!llvm.ptr, i64) -> i64
  return %value : i64
}
// The token of output row `row`.
func.func private @output_token(%context: !llvm.ptr, %row: i64) -> i64 {
  %field = arith.constant ${wantedRows} : i64
  %index = func.call @element(%context, %field, %row) : (!llvm.ptr, i64, i64) -> i32
  %token = arith.extsi %index : i32 to i64
  return %token : i64
}
func.func private @output(%context: !llvm.ptr) -> !llvm.ptr {
  %field = arith.constant ${result} : i64
  %base = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  return %base : !llvm.ptr
}
// The thread's range of `units` units of work.
func.func private @range(%context: !llvm.ptr, %thread: i32, %units: i64) -> (i64, i64) {
  %field = arith.constant ${shares} : i64
  %c1 = arith.constant 1 : i64
  %c16 = arith.constant 16 : i64
  %from = arith.extui %thread : i32 to i64
  %to = arith.addi %from, %c1 : i64
  %a32 = func.call @element(%context, %field, %from) : (!llvm.ptr, i64, i64) -> i32
  %b32 = func.call @element(%context, %field, %to) : (!llvm.ptr, i64, i64) -> i32
  %a = arith.extui %a32 : i32 to i64
  %b = arith.extui %b32 : i32 to i64
  %au = arith.muli %units, %a : i64
  %bu = arith.muli %units, %b : i64
  %begin = arith.shrui %au, %c16 : i64
  %end = arith.shrui %bu, %c16 : i64
  return %begin, %end : i64, i64
}
// Where `bad` is not 0, notes that op `op` saw a value that is not finite.
func.func private @flag(%context: !llvm.ptr, %token: i64, %op: i32, %bad: i32) {
  %c0 = arith.constant 0 : i32
  %field = arith.constant ${flags} : i64
  %set = arith.cmpi ne, %bad, %c0 : i32
  scf.if %set {
    %flags = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
    %at = llvm.getelementptr %flags[%token] : (!llvm.ptr, i64) -> !llvm.ptr, i32
    %old = llvm.atomicrmw umin %at, %op monotonic : !llvm.ptr, i32
  }
  return
}
// Start of the KV page of a token's sequence that holds positions from
// 64 * page on.
func.func private @page(%context: !llvm.ptr, %token: i64, %page: i64, %bytes: i64) -> !llvm.ptr {
  %sequences = arith.constant ${sequences} : i64
  %stride_field = arith.constant ${pageTableStride} : i64
  %tables = arith.constant ${pageTables} : i64
  %pool_field = arith.constant ${kvPool} : i64
  %sequence32 = func.call @element(%context, %sequences, %token) : (!llvm.ptr, i64, i64) -> i32
  %sequence = arith.extsi %sequence32 : i32 to i64
  %stride = func.call @field(%context, %stride_field) : (!llvm.ptr, i64) -> i64
  %first = arith.muli %sequence, %stride : i64
  %entry = arith.addi %first, %page : i64
  %number32 = func.call @element(%context, %tables, %entry) : (!llvm.ptr, i64, i64) -> i32
  %number = arith.extsi %number32 : i32 to i64
  %offset = arith.muli %number, %bytes : i64
  %pool = func.call @pointer(%context, %pool_field) : (!llvm.ptr, i64) -> !llvm.ptr
  %at = func.call @bytes(%pool, %offset) : (!llvm.ptr, i64) -> !llvm.ptr
  return %at : !llvm.ptr
}
func.func private @position(%context: !llvm.ptr, %token: i64) -> i64 {
  %field = arith.constant ${positions} : i64
  %position32 = func.call @element(%context, %field, %token) : (!llvm.ptr, i64, i64) -> i32
  %position = arith.extsi %position32 : i32 to i64
  return %position : i64
}
)mlir";

/// Threads have speeds that change within an op: memory serves now one and now
/// another, a thread that reads alone gets little more than its part of the
/// bandwidth, and another program or virtual machine may be on a core. So the
/// last units are not in anybody's share: whoever is done takes some of them,
/// ever fewer. No result depends on it.
static constexpr std::string_view kTake = R"mlir(
// How many of the units are divided by shares: all of them for one thread, and
// where the last eighth is too little for each to take `together` of it twice.
func.func private @shared(%context: !llvm.ptr, %units: i64, %together: i64) -> i64 {
  %c1 = arith.constant 1 : i64
  %c3 = arith.constant 3 : i64
  %eighth = arith.shrui %units, %c3 : i64
  %thread0 = arith.constant 0 : i32
  %zero, %range = func.call @range(%context, %thread0, %eighth) : (!llvm.ptr, i32, i64) -> (i64, i64)
  %twice = arith.shli %together, %c1 : i64
  %enough = arith.cmpi uge, %range, %twice : i64
  %others = arith.cmpi ult, %range, %eighth : i64
  %taken = arith.andi %enough, %others : i1
  %most = arith.subi %units, %eighth : i64
  %count = arith.select %taken, %most, %units : i64
  return %count : i64
}
// The next units for the thread of those from `shared` on; none are left where
// the range is empty.
func.func private @take(%context: !llvm.ptr, %thread: i32, %op: i32, %shared: i64, %units: i64, %least: i64) -> (i64, i64) attributes {passthrough = ["noinline"]} {
  %c1 = arith.constant 1 : i64
  %field = arith.constant ${taken} : i64
  %array = func.call @pointer(%context, %field) : (!llvm.ptr, i64) -> !llvm.ptr
  %at = llvm.getelementptr %array[%op] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  %start = llvm.load %at atomic monotonic {alignment = 4 : i64} : !llvm.ptr -> i32
  %seen, %first, %last = scf.while (%old = %start) : (i32) -> (i32, i64, i64) {
    %before = arith.extui %old : i32 to i64
    %begin = arith.addi %shared, %before : i64
    %left = arith.subi %units, %begin : i64
    // Half of the thread's range of what is left.
    %a, %b = func.call @range(%context, %thread, %left) : (!llvm.ptr, i32, i64) -> (i64, i64)
    %range = arith.subi %b, %a : i64
    %half = arith.shrui %range, %c1 : i64
    %wanted = arith.maxui %half, %least : i64
    %count = arith.minui %wanted, %left : i64
    %end = arith.addi %begin, %count : i64
    %count32 = arith.trunci %count : i64 to i32
    %new = arith.addi %old, %count32 : i32
    // Where nothing is left, the number stays in every thread's cache.
    %some = arith.cmpi ne, %new, %old : i32
    %value = scf.if %some -> (i32) {
      %exchange = llvm.cmpxchg %at, %old, %new monotonic monotonic : !llvm.ptr, i32
      %found = llvm.extractvalue %exchange[0] : !llvm.struct<(i32, i1)>
      scf.yield %found : i32
    } else {
      scf.yield %old : i32
    }
    %again = arith.cmpi ne, %value, %old : i32
    scf.condition(%again) %value, %begin, %end : i32, i64, i64
  } do {
  ^bb0(%value: i32, %begin: i64, %end: i64):
    scf.yield %value : i32
  }
  return %first, %last : i64, i64
}
)mlir";

static constexpr std::string_view kOverUnits =
    R"mlir(  %shared = func.call @shared(%context, ${units}, ${together}) : (!llvm.ptr, i64, i64) -> i64
  %begin, %end = func.call @range(%context, %thread, %shared) : (!llvm.ptr, i32, i64) -> (i64, i64)
  %none:2 = scf.while (%first = %begin, %last = %end) : (i64, i64) -> (i64, i64) {
${compute}
    %next:2 = func.call @take(%context, %thread, %op, %shared, ${units}, ${least}) : (!llvm.ptr, i32, i32, i64, i64, i64) -> (i64, i64)
    %more = arith.cmpi ult, %next#0, %next#1 : i64
    scf.condition(%more) %next#0, %next#1 : i64, i64
  } do {
  ^bb0(%first: i64, %last: i64):
    scf.yield %first, %last : i64, i64
  })mlir";

static constexpr std::string_view kBarrier = R"mlir(
func.func private @barrier(%context: !llvm.ptr, %thread: i32) {
  %function_field = arith.constant ${barrier} : i64
  %state_field = arith.constant ${barrierState} : i64
  %function = func.call @pointer(%context, %function_field) : (!llvm.ptr, i64) -> !llvm.ptr
  %state = func.call @pointer(%context, %state_field) : (!llvm.ptr, i64) -> !llvm.ptr
  llvm.call %function(%state, %thread) : !llvm.ptr, (!llvm.ptr, i32) -> ()
  return
}
)mlir";

static constexpr std::string_view kTrace = R"mlir(
func.func private @trace(%context: !llvm.ptr, %thread: i32, %op: i32) attributes {passthrough = ["noinline"]} {
  %function_field = arith.constant ${trace} : i64
  %state_field = arith.constant ${traceState} : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %function = func.call @pointer(%context, %function_field) : (!llvm.ptr, i64) -> !llvm.ptr
  %wanted = llvm.icmp "ne" %function, %null : !llvm.ptr
  scf.if %wanted {
    %state = func.call @pointer(%context, %state_field) : (!llvm.ptr, i64) -> !llvm.ptr
    llvm.call %function(%state, %thread, %op) : !llvm.ptr, (!llvm.ptr, i32, i32) -> ()
  }
  return
}
)mlir";

static constexpr std::string_view kWantHidden = R"mlir(
func.func private @want_hidden(%context: !llvm.ptr, %thread: i32) -> i1 {
  %c0 = arith.constant 0 : i64
  %field = arith.constant ${wantHidden} : i64
  %value = func.call @field(%context, %field) : (!llvm.ptr, i64) -> i64
  %set = arith.cmpi ne, %value, %c0 : i64
  return %set : i1
}
)mlir";

/// Rows of a quantized value: its scales and sums lie without gaps.
static constexpr std::string_view kBlocks = R"mlir(
func.func private @blocks(%k: i64) -> i64 {
  %block = arith.constant ${block} : i64
  %c1 = arith.constant 1 : i64
  %last = arith.subi %k, %c1 : i64
  %before = arith.divui %last, %block : i64
  %blocks = arith.addi %before, %c1 : i64
  return %blocks : i64
}
func.func private @scales_row(%base: !llvm.ptr, %row: i64, %k: i64) -> !llvm.ptr {
  %blocks = func.call @blocks(%k) : (i64) -> i64
  %at = func.call @row(%base, %row, %blocks) : (!llvm.ptr, i64, i64) -> !llvm.ptr
  return %at : !llvm.ptr
}
func.func private @sums_row(%base: !llvm.ptr, %row: i64, %k: i64) -> !llvm.ptr {
  %group = arith.constant ${group} : i64
  %groups = arith.divui %k, %group : i64
  %at = func.call @row(%base, %row, %groups) : (!llvm.ptr, i64, i64) -> !llvm.ptr
  return %at : !llvm.ptr
}
)mlir";

//===----------------------------------------------------------------------===//
// Signatures of the kernels
//===----------------------------------------------------------------------===//

/// MLIR's type of a C type in the signatures of KernelOps.def.
template <typename T> static std::string_view typeOf() {
  if constexpr (std::is_pointer_v<T>)
    return "!llvm.ptr";
  else if constexpr (std::is_same_v<T, int64_t>)
    return "i64";
  else if constexpr (std::is_same_v<T, int32_t>)
    return "i32";
  else {
    static_assert(std::is_same_v<T, float>);
    return "f32";
  }
}
template <typename Result, typename... Arguments>
static std::string functionType(Result (*)(Arguments...)) {
  std::string type = "(";
  ((type += std::string(type.size() > 1 ? ", " : "") +
            std::string(typeOf<Arguments>())),
   ...);
  type += ") -> ";
  if constexpr (std::is_void_v<Result>)
    return type + "()";
  else
    return type + std::string(typeOf<Result>());
}

static std::string kernelType(const KernelInfo &kernel) {
  return visitKernelOp(kernel.op, []<KernelOp Op>() {
    return functionType(static_cast<KernelFn<Op> *>(nullptr));
  });
}

//===----------------------------------------------------------------------===//
// Instances
//===----------------------------------------------------------------------===//

/// Index of a field of Context, in units of 8 bytes.
#define QWEN_FIELD(Name) {#Name, std::to_string(offsetof(Context, Name) / 8)}

static const std::map<std::string, std::string> &constants() {
  static const std::map<std::string, std::string> map = {
      QWEN_FIELD(weights),
      QWEN_FIELD(arena),
      QWEN_FIELD(kvPool),
      QWEN_FIELD(tokenIds),
      QWEN_FIELD(sequences),
      QWEN_FIELD(positions),
      QWEN_FIELD(pageTables),
      QWEN_FIELD(wantedRows),
      QWEN_FIELD(flags),
      QWEN_FIELD(result),
      QWEN_FIELD(shares),
      QWEN_FIELD(barrier),
      QWEN_FIELD(barrierState),
      QWEN_FIELD(tokens),
      QWEN_FIELD(rows),
      QWEN_FIELD(pageTableStride),
      QWEN_FIELD(wantHidden),
      QWEN_FIELD(trace),
      QWEN_FIELD(traceState),
      QWEN_FIELD(taken),
      {"block", std::to_string(kActivationBlock)},
      {"group", std::to_string(kGroup)},
      {"panel", std::to_string(kPanelOutputs)},
      {"pageTokens", std::to_string(kPageTokens)},
  };
  return map;
}
#undef QWEN_FIELD

std::string LowerFunctions::replace(std::string_view text,
                                    const Substitutions &substitutions) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find("${", at);
    result += text.substr(at, begin - at);
    if (begin == std::string_view::npos)
      break;
    const size_t end = text.find('}', begin);
    const std::string key(text.substr(begin + 2, end - begin - 2));
    const auto found = substitutions.find(key);
    result +=
        found != substitutions.end() ? found->second : constants().at(key);
    at = end + 1;
  }
  return result;
}

std::string LowerFunctions::add(const std::string &name, std::string_view text,
                                const Substitutions &substitutions) {
  Substitutions all = substitutions;
  all["name"] = name;
  functions.try_emplace(name, replace(text, all));
  return name;
}

void LowerFunctions::declare(const KernelInfo &kernel, const std::string &key,
                             Substitutions &substitutions) {
  const std::string type = kernelType(kernel);
  const std::string name(kernel.name);
  declarations.try_emplace(name, "func.func private @" + name + type + "\n");
  substitutions[key] = name;
  substitutions[key + ".type"] = type;
}

std::string LowerFunctions::overUnits(std::string_view units,
                                      std::string_view together,
                                      std::string_view least,
                                      std::string_view compute) {
  add("take", kTake, {});
  return replace(kOverUnits, {{"units", std::string(units)},
                              {"together", std::string(together)},
                              {"least", std::string(least)},
                              {"compute", std::string(compute)}});
}

std::string LowerFunctions::barrier() { return add("barrier", kBarrier, {}); }
std::string LowerFunctions::trace() { return add("trace", kTrace, {}); }
std::string LowerFunctions::wantHidden() {
  return add("want_hidden", kWantHidden, {});
}
std::string LowerFunctions::text() const {
  std::string result = replace(kCommon, {}) + replace(kBlocks, {});
  for (const auto &[name, text] : declarations)
    result += text;
  for (const auto &[name, text] : functions)
    result += text;
  return result;
}
