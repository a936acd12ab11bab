#include "model/cli/version.h"

#include "absl/strings/str_cat.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "model/cli/commit.h"
#include "model/cli/open_gpu.h"

namespace headwise {
namespace {

#if defined(__AVX512F__)
constexpr char kArch[] = "x86-64 with AVX-512";
#elif defined(__AVX2__)
constexpr char kArch[] = "x86-64 with AVX2";
#else
constexpr char kArch[] = "generic";
#endif

}  // namespace

std::string VersionText() {
  return absl::StrCat("muse 0.1.0\ncommit    ", kCommit, "\ncompiler  ", __VERSION__,
                      "\narch      ", kArch, "\nCUDA      ", CudaDescription(),
                      "\ncontracts prepare_qkv ", kPrepareQkvContractVersion, ", newton_schulz ",
                      kNewtonSchulzContractVersion, ", muon_step ", kMuonStepContractVersion);
}

}  // namespace headwise
