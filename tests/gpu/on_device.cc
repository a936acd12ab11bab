#include "tests/gpu/on_device.h"

#include "core/base/status_macros.h"
#include "core/cuda/stream.h"

namespace headwise {

std::byte* OnDevice::AllOnes(std::int64_t bytes) {
  absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(bytes);
  status_.Update(memory.status());
  if (!memory.ok()) return nullptr;
  scratch_.push_back(*std::move(memory));
  return scratch_.back().data();
}

std::uint64_t* OnDevice::Fault() {
  absl::StatusOr<DeviceArray<std::uint64_t>> word = DeviceArray<std::uint64_t>::Allocate(1);
  status_.Update(word.status());
  if (word.ok()) fault_word_ = *std::move(word);
  return fault_word_.data();
}

absl::Status OnDevice::Reset() {
  for (const Copy& copy : copies_) {
    if (copy.out != nullptr) HW_RETURN_IF_ERROR(copy.mirror.Upload(copy.before.data()));
  }
  for (const DeviceMemory& memory : scratch_) {
    HW_RETURN_IF_ERROR(FillDevice(memory.data(), 0xff, memory.size()));
  }
  return FillDevice(fault_word_.data(), 0xff,
                    fault_word_.size() * std::int64_t{sizeof(std::uint64_t)});
}

absl::Status OnDevice::Run(absl::FunctionRef<absl::Status(CUstream_st*)> enqueue) {
  HW_RETURN_IF_ERROR(status_);
  HW_RETURN_IF_ERROR(Reset());
  HW_RETURN_IF_ERROR(enqueue(nullptr));
  const auto fault = [&]() -> absl::StatusOr<std::uint64_t> {
    std::uint64_t word = 0;
    if (fault_word_.size() == 0) return word;
    HW_RETURN_IF_ERROR(CopyToHost(&word, fault_word_.data(), sizeof(word)));
    return word;
  };
  HW_ASSIGN_OR_RETURN(fault_, fault());
  for (const Copy& copy : copies_) {
    if (copy.out != nullptr) HW_RETURN_IF_ERROR(copy.mirror.Download(copy.out));
  }

  HW_RETURN_IF_ERROR(Reset());
  HW_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  HW_ASSIGN_OR_RETURN(const CudaGraph graph,
                      CudaGraph::Capture(stream, [&](CUstream_st* s) { return enqueue(s); }));
  HW_RETURN_IF_ERROR(graph.Launch(stream));
  HW_RETURN_IF_ERROR(stream.Synchronize());
  for (const Copy& copy : copies_) {
    if (copy.mirror.CheckEqual(copy.original, "").ok()) continue;
    return absl::InternalError(copy.out == nullptr ? "an input was written"
                                                   : "a graph's bytes are not its launches'");
  }
  HW_ASSIGN_OR_RETURN(const std::uint64_t in_graph, fault());
  if (in_graph != fault_) return absl::InternalError("a graph's fault is not its launches'");
  return absl::OkStatus();
}

}  // namespace headwise
