//===- Target.cpp - Targets of generated code -----------------------------===//

#include "qwen/CodeGen/Backend/Target.h"
#include "qwen/ABI/HostTarget.h"
#include "qwen/CodeGen/Backend/HostCpu.h"
#include "qwen/Support/Error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/AArch64TargetParser.h"
#include "llvm/TargetParser/X86TargetParser.h"
#include <optional>

using namespace qwen;
using llvm::StringRef;

static constexpr NamedTarget kNamedTargets[] = {
    {"cortex-a53", "cortex-a53"},
    {"cortex-a55", "cortex-a55"},
    {"cortex-a72", "cortex-a72"},
    {"cortex-a76", "cortex-a76"},
    {"cortex-a78", "cortex-a78"},
    {"cortex-x1", "cortex-x1"},
    {"cortex-x2", "cortex-x2"},
    {"cortex-x4", "cortex-x4"},
    {"neoverse-n1", "neoverse-n1"},
    {"neoverse-n2", "neoverse-n2"},
    {"neoverse-n3", "neoverse-n3"},
    {"neoverse-v1", "neoverse-v1"},
    {"neoverse-v2", "neoverse-v2"},
    {"neoverse-v3", "neoverse-v3"},
    {"yitian710", "neoverse-n2"},
    {"graviton2", "neoverse-n1"},
    {"graviton3", "neoverse-v1"},
    {"graviton4", "neoverse-v2"},
    {"ampere-altra", "neoverse-n1"},
    {"ampere-one", "ampere1"},
    {"kunpeng920", "tsv110"},
    {"apple-m1", "apple-m1"},
    {"apple-m2", "apple-m2"},
    {"apple-m3", "apple-m3"},
    {"apple-m4", "apple-m4"},
    {"rk3588", "cortex-a76"},
    {"raspberry-pi4", "cortex-a72"},
    {"raspberry-pi5", "cortex-a76"},
    {"haswell", "haswell"},
    {"broadwell", "broadwell"},
    {"skylake", "skylake"},
    {"skylake-avx512", "skylake-avx512"},
    {"cannonlake", "cannonlake"},
    {"cascadelake", "cascadelake"},
    {"cooperlake", "cooperlake"},
    {"icelake-client", "icelake-client"},
    {"icelake-server", "icelake-server"},
    {"tigerlake", "tigerlake"},
    {"rocketlake", "rocketlake"},
    {"alderlake", "alderlake"},
    {"raptorlake", "raptorlake"},
    {"meteorlake", "meteorlake"},
    {"arrowlake", "arrowlake"},
    {"lunarlake", "lunarlake"},
    {"sierraforest", "sierraforest"},
    {"sapphirerapids", "sapphirerapids"},
    {"emeraldrapids", "emeraldrapids"},
    {"graniterapids", "graniterapids"},
    {"zen1", "znver1"},
    {"zen2", "znver2"},
    {"zen3", "znver3"},
    {"zen4", "znver4"},
    {"zen5", "znver5"},
};

/// Tuning features that LLVM's lists lack.
static constexpr struct {
  /// LLVM's name.
  StringRef cpu;
  /// Target::tuneFeatures.
  StringRef features;
} kTunedCpus[] = {
    // A load of two vectors of 128 bits has three micro-operations and is
    // slower than two loads. bench/mca.py shows it
    // (docs/notebook/arm-static-model.md).
    {"neoverse-n2", "+slow-paired-128"},
    {"neoverse-v2", "+slow-paired-128"},
};

std::span<const NamedTarget> qwen::namedTargets() { return kNamedTargets; }

/// LLVM's name of a CPU.
static StringRef resolveAlias(StringRef name) {
  for (const NamedTarget &target : kNamedTargets)
    if (name == target.name)
      return target.cpu;
  return name;
}

static CpuFeatureSet keepKnown(llvm::ArrayRef<StringRef> names) {
  CpuFeatureSet features;
  for (StringRef name : names)
    if (std::optional<CpuFeature> feature =
            parseFeature(std::string_view(name)))
      features.insert(*feature);
  return features;
}

std::vector<std::string> qwen::targetCpuNames(Arch arch) {
  llvm::SmallVector<StringRef> names;
  if (arch == Arch::AArch64)
    llvm::AArch64::fillValidCPUArchList(names);
  else
    llvm::X86::fillValidCPUArchList(names, /*Only64Bit=*/true);
  // Both architectures have a "generic", so the name alone is ambiguous.
  llvm::erase(names, "generic");
  for (const NamedTarget &target : kNamedTargets)
    if (llvm::is_contained(names, target.cpu) &&
        !llvm::is_contained(names, target.name))
      names.push_back(target.name);
  llvm::sort(names);
  return {names.begin(), names.end()};
}

/// The error for an unknown name, with the most similar known name.
static Error unknownTarget(StringRef spec, StringRef name) {
  std::string nearest;
  // A name that differs in more than a third of its letters is not a
  // misspelling.
  unsigned best = static_cast<unsigned>(name.size() / 3 + 1);
  for (Arch arch : {Arch::AArch64, Arch::X86_64})
    for (const std::string &known : targetCpuNames(arch)) {
      unsigned distance = name.edit_distance(known, true, best);
      if (distance < best) {
        best = distance;
        nearest = known;
      }
    }
  return Error("unknown target '" + part::subject(spec.str()) + "'" +
               (nearest.empty() ? "" : ": did you mean '" + nearest + "'?") +
               " (a CPU of `clang --print-supported-cpus`, features such as "
               "armv8.2-a+dotprod or x86-64-v4+avx512vnni, or native)");
}

static Error unknownFeature(StringRef spec, StringRef feature) {
  return Error("unknown feature '" + part::found(feature.str()) +
               "' in target '" + part::subject(spec.str()) +
               "': features are spelled as in clang's -march");
}

static std::optional<CpuFeatureSet>
parseAArch64(StringRef spec, StringRef name,
             llvm::ArrayRef<StringRef> modifiers) {
  llvm::AArch64::ExtensionSet extensions;
  if (name.starts_with("armv")) {
    const llvm::AArch64::ArchInfo *info = llvm::AArch64::parseArch(name);
    if (!info || info->Name != name)
      return std::nullopt;
    extensions.addArchDefaults(*info);
  } else {
    std::optional<llvm::AArch64::CpuInfo> cpu = llvm::AArch64::parseCpu(name);
    if (!cpu || name == "generic")
      return std::nullopt;
    extensions.addCPUDefaults(*cpu);
  }
  for (StringRef modifier : modifiers)
    if (!extensions.parseModifier(modifier))
      throw unknownFeature(spec, modifier);
  std::vector<StringRef> features, names;
  extensions.toLLVMFeatureList(features);
  for (StringRef feature : features)
    if (feature.consume_front("+"))
      names.push_back(feature);
  return keepKnown(names);
}

static bool isX86Feature(StringRef name) {
  static constexpr StringRef known[] = {
#define X86_FEATURE(Enumerator, Spelling) Spelling,
#define X86_MICROARCH_LEVEL(Enumerator, Spelling, Priority, AbiValue)
#include "llvm/TargetParser/X86TargetParser.def"
  };
  return llvm::is_contained(known, name);
}

static std::optional<CpuFeatureSet>
parseX86(StringRef spec, StringRef name, llvm::ArrayRef<StringRef> modifiers) {
  if (llvm::X86::parseArchX86(name, /*Only64Bit=*/true) == llvm::X86::CK_None)
    return std::nullopt;
  llvm::SmallVector<StringRef> names;
  llvm::X86::getFeaturesForCPU(name, names);
  llvm::StringMap<bool> enabled;
  for (StringRef feature : names) {
    enabled[feature] = true;
    llvm::X86::updateImpliedFeatures(feature, true, enabled);
  }
  for (StringRef modifier : modifiers) {
    StringRef feature = modifier;
    const bool add = isX86Feature(feature);
    if (!add && !(feature.consume_front("no") && isX86Feature(feature)))
      throw unknownFeature(spec, modifier);
    enabled[feature] = add;
    llvm::X86::updateImpliedFeatures(feature, add, enabled);
  }
  names.clear();
  for (const auto &entry : enabled)
    if (entry.second)
      names.push_back(entry.first());
  return keepKnown(names);
}

Target qwen::resolveTarget(StringRef spec) {
  Target target;
  target.name = spec.str();
  if (spec == "native") {
    target.arch = hostArch();
    target.features = hostFeatures();
    target.tuneCpu = hostCpu();
    target.name = target.tuneCpu == "generic" ? hostTarget() : target.tuneCpu;
  } else {
    llvm::SmallVector<StringRef> parts;
    spec.split(parts, '+');
    const StringRef name = resolveAlias(parts.front());
    const llvm::ArrayRef<StringRef> modifiers =
        llvm::ArrayRef(parts).drop_front();
    std::optional<CpuFeatureSet> features = parseAArch64(spec, name, modifiers);
    target.arch = Arch::AArch64;
    if (!features) {
      features = parseX86(spec, name, modifiers);
      target.arch = Arch::X86_64;
    }
    if (!features)
      throw unknownTarget(spec, parts.front());
    target.features = *features;
    // Levels such as x86-64-v3 and armv8-a are not CPUs.
    const bool isCpu =
        target.arch == Arch::AArch64
            ? !name.starts_with("armv")
            : llvm::X86::parseTuneCPU(name, true) != llvm::X86::CK_None;
    target.tuneCpu = isCpu ? name.str() : "generic";
  }
  for (const auto &tuned : kTunedCpus)
    if (tuned.cpu == target.tuneCpu)
      target.tuneFeatures = tuned.features.str();
  const CpuFeatureSet missing = leastFeatures(target.arch) - target.features;
  if (!missing.empty())
    throw Error("target '" + part::subject(spec.str()) + "' lacks " +
                toString(missing) + ": " + archName(target.arch) +
                " code needs at least " +
                part::needed(toString(leastFeatures(target.arch))));
  target.triple = target.arch == Arch::X86_64 ? "x86_64-unknown-linux-gnu"
                                              : "aarch64-unknown-linux-gnu";
  return target;
}

std::vector<Target> qwen::resolveTargets(StringRef list) {
  llvm::SmallVector<StringRef> specs;
  list.split(specs, ',');
  std::vector<Target> targets;
  for (StringRef spec : specs) {
    if (spec.empty() && specs.size() > 1)
      throw Error("targets '" + part::subject(list.str()) +
                  "' have an empty name; names are separated by one comma");
    Target target = resolveTarget(spec);
    for (const Target &other : targets) {
      if (other.name == target.name)
        throw Error("targets '" + part::subject(list.str()) + "' have '" +
                    part::found(target.name) + "' twice");
      if (other.arch != target.arch)
        throw Error("target '" + other.name + "' is " +
                    part::needed(std::string(archName(other.arch))) + " and '" +
                    part::subject(target.name) + "' is " +
                    part::found(std::string(archName(target.arch))) +
                    ": a file has code for one architecture; compile a file "
                    "for each");
    }
    targets.push_back(std::move(target));
  }
  return targets;
}
