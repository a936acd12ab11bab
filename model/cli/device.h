// device: the --device flag, and how many threads to use when nobody says.
//
//   HW_ASSIGN_OR_RETURN(const CommandDevice device, OpenDevice(flags.device));
//   DecoderOptions options = DecoderOptionsOf(config.training());
//   device.Choose(&options);
#ifndef HEADWISE_MODEL_CLI_DEVICE_H_
#define HEADWISE_MODEL_CLI_DEVICE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/cli/open_gpu.h"
#include "model/decoder.h"
#include "model/ops.h"

namespace headwise {

// Where a command runs. Owns the GPU: it must outlive decoders and graphs.
struct CommandDevice {
  Kernels kernels = Kernels::kCpu;  // on the CPU
  OpenedGpu opened;                 // the GPU of --device cuda; else null

  bool on_gpu() const { return opened.gpu != nullptr; }
  bool runs_cuda_kernels() const { return on_gpu() || kernels == Kernels::kCudaEmulated; }
  // Sets device, kernels, gpu and launchers.
  void Choose(DecoderOptions* options) const;
};

// Of one of `names`, those that the command takes. kInvalidArgument for another, kUnimplemented if
// there is no such device here (model/cli/open_gpu.h).
absl::StatusOr<CommandDevice> OpenDevice(const std::string& name,
                                         const std::vector<std::string>& names = {"cpu", "cuda",
                                                                                  "cuda-emulated"});

// A command line that goes on where a run was, on the device of this name, for what is printed:
// CommandOn("cuda", "train --run runs/demo") is "muse_cuda train --run runs/demo --device cuda".
std::string CommandOn(const std::string& name, const std::string& arguments);

// The cores this process may use.
int DefaultThreads();

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_DEVICE_H_
