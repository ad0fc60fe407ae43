//===- ExpertCases.cpp - Cases of the kernels of experts ------------------===//

#include "Cases.h"

using namespace qwen;
using namespace qwen::verify;

/// Compares the choice of `chosen` of these logits.
static void compareChoice(const Cases &cases,
                          const Compared<KernelOp::ChooseExperts> &of,
                          const Guarded<float> &logits, int64_t chosen) {
  const auto run = [&](ChooseExpertsFn *fn, Guarded<int32_t> &ids,
                       Guarded<float> &p) {
    return fn(logits.data(), logits.length(), chosen, ids.data(), p.data());
  };
  Guarded<int32_t> ids(chosen, -1), idsNeeded(ids);
  Guarded<float> p(chosen, kNaN), pNeeded(p);
  const int32_t flag = run(of.kernel, ids, p);
  const int32_t needed = run(of.reference, idsNeeded, pNeeded);
  cases.expectFlag(flag, needed);
  cases.expectSame(ids, idsNeeded, "ids");
  if (!needed)
    cases.expectSame(p, pNeeded, "p");
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::ChooseExperts> &of) {
  Random random(24);
  for (int64_t n : {1, 2, 7, 15, 16, 17, 60, 128, 256, 511, 512, 1024})
    for (int64_t chosen : {int64_t{1}, int64_t{3}, int64_t{8}, n / 2, n}) {
      if (chosen < 1 || chosen > n)
        continue;
      for (Values kind : kValues) {
        cases.start("experts ", n, ", chosen ", chosen, ", values ",
                    valuesName(kind));
        Guarded<float> logits = random.floats(n, kind);
        compareChoice(cases, of, logits, chosen);
        // Ties.
        for (float &x : logits)
          x = std::rint(x * 2);
        compareChoice(cases, of, logits, chosen);
      }
      for (float bad : {kMax, -kMax, kInf, -kInf, kNaN}) {
        cases.start("experts ", n, ", chosen ", chosen, ", a logit of ", bad);
        Guarded<float> logits = random.floats(n);
        logits[random.below(n)] = bad;
        compareChoice(cases, of, logits, chosen);
      }
    }
}

void verify::checkKernel(Cases &cases,
                         const Compared<KernelOp::AddScaled> &of) {
  Random random(25);
  for (int64_t n : {16, 32, 48, 128, 144, 256})
    for (Values kind : kValues) {
      cases.start("n ", n, ", values ", valuesName(kind));
      const Guarded<float> x = random.floats(n, kind);
      const Guarded<float> y = random.floats(n, kind);
      const float w = random.uniform();
      cases.compare(of, y, "y", [&](AddScaledFn *fn, float *to) {
        fn(x.data(), w, n, to);
      });
    }
}
