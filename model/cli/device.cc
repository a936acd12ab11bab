#include "model/cli/device.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/base/nearest_name.h"

namespace headwise {

absl::StatusOr<Kernels> KernelsOfDevice(const std::string& name) {
  if (name == "cpu") return Kernels::kCpu;
  if (name == "cuda-emulated") return Kernels::kCudaEmulated;
  if (name == "cuda") {
    return absl::UnimplementedError(
        "--device cuda: this binary was built without CUDA: muse does not run on GPUs yet, with or "
        "without a toolkit; try --device cpu, or --device cuda-emulated");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--device: expected cpu, cuda or cuda-emulated, found '", name, "'",
                   DidYouMean(name, {"cpu", "cuda", "cuda-emulated"})));
}

int DefaultThreads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace headwise
