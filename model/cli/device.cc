#include "model/cli/device.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"

namespace headwise {

void CommandDevice::Choose(DecoderOptions* options) const {
  options->device = on_gpu() ? Device::kCuda : Device::kCpu;
  options->kernels = kernels;
  options->gpu = opened.gpu.get();
  options->launchers = opened.launchers;
}

absl::StatusOr<CommandDevice> OpenDevice(const std::string& name,
                                         const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    // "gpu" is one letter from "cpu", and means the other.
    const std::string meant = name == "gpu" ? "cuda" : name;
    return absl::InvalidArgumentError(
        absl::StrCat("--device: expected ", absl::StrJoin(names.begin(), names.end() - 1, ", "),
                     " or ", names.back(), ", found '", name, "'", DidYouMean(meant, names)));
  }
  CommandDevice device;
  if (name == "cuda") {
    HW_ASSIGN_OR_RETURN(device.opened, OpenGpu());
  } else if (name == "cuda-emulated") {
    device.kernels = Kernels::kCudaEmulated;
  }
  return device;
}

std::string CommandOn(const std::string& name, const std::string& arguments) {
  // --device cuda runs in //model:muse_cuda only.
  return absl::StrCat(name == "cuda" ? "muse_cuda " : "muse ", arguments,
                      name == "cpu" ? "" : absl::StrCat(" --device ", name));
}

int DefaultThreads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace headwise
