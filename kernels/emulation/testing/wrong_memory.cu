#include "kernels/emulation/cuda_kernel.h"
#include "kernels/emulation/testing/wrong_memory.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

__device__ bool Is(int who) { return static_cast<int>(threadIdx.x) == who; }

// What is loaded goes somewhere, or the compiler leaves the load out.
__device__ void Use(float value) {
  if (value == 12345.0f) __syncwarp(1u << threadIdx.x);
}

__global__ void LoadOneKernel(const float* p, long long index, int who) {
  if (Is(who)) Use(LoadGlobal(p + index));  // HERE: LoadOne
}

__global__ void StoreOneKernel(float* p, long long index, int who) {
  if (Is(who)) StoreGlobal(p + index, 7.0f);  // HERE: StoreOne
}

__global__ void AddOneKernel(unsigned* p, long long index, int who) {
  if (Is(who)) atomicAdd(p + index, 1u);  // HERE: AddOne
}

__global__ void LoadFourKernel(const float* p, long long index, int who) {
  if (Is(who)) Use(LoadCached(reinterpret_cast<const float4*>(p + index)).x);  // HERE: LoadFour
}

__global__ void ReadSharedKernel(int written, int index) {
  HW_SHARED(float, values, 8);
  HW_SHARED(unsigned, more, 8);
  for (int i = 0; i < written; ++i) values[i] = 1.0f, more[i] = 1u;
  Use(values[index]);  // HERE: ReadShared
}

__global__ void WriteSharedKernel(int index) {
  HW_SHARED(float, values, 8);
  values[index] = 1.0f;  // HERE: WriteShared
}

__global__ void AddSharedKernel(int written, int index) {
  HW_SHARED(unsigned, values, 8);
  for (int i = 0; i < written; ++i) values[i] = 1u;
  atomicAdd(&values[index], 1u);  // HERE: AddShared
}

__global__ void ReadSharedFourKernel(int written, int index) {
  HW_SHARED(float, values, 8);
  for (int i = 0; i < written; ++i) values[i] = 1.0f;
  Use(values.Load<float4>(index).w);  // HERE: ReadSharedFour
}

__global__ void ReadDynamicKernel(int offset, int written, int index) {
  HW_DYNAMIC_SHARED(float, values, offset);  // HERE: offset of ReadDynamic
  for (int i = 0; i < written; ++i) values[i] = 1.0f;
  Use(values[index]);  // HERE: ReadDynamic
}

__global__ void ReadsTheLastBlocksSharedKernel() {
  HW_SHARED(float, values, 8);
  if (blockIdx.x == 0) {
    values[3] = 1.0f;
  } else {
    Use(values[3]);  // HERE: ReadsTheLastBlocksShared
  }
}

__global__ void LargeSharedKernel(int bytes) {
  HW_DYNAMIC_SHARED(char, dynamic, 0);
  HW_SHARED(char, fixed, 48 << 10);  // HERE: LargeShared
  if (bytes > 0) dynamic[bytes - 1] = 1;
  fixed[(48 << 10) - 1] = 1;
}

__device__ float Deep(const float* p, int depth, bool load) {
  volatile float frame[256];
  frame[depth % 256] = static_cast<float>(depth);
  if (depth > 0) return Deep(p, depth - 1, load) + frame[depth % 256];
  return load ? LoadGlobal(p) : frame[0];  // HERE: Recurse
}

__global__ void RecurseKernel(const float* p, int depth, bool load) { Use(Deep(p, depth, load)); }

__global__ void LargeFrameKernel(const float* p) {
  volatile float frame[40 << 10];
  for (int i = 0; i < 40 << 10; i += 128) frame[i] = 1.0f;
  frame[5] = LoadGlobal(p);  // HERE: LargeFrame
  Use(frame[5]);
}

}  // namespace

absl::Status LoadOne(const float* p, long long index, int who) {
  HW_LAUNCH(LoadOneKernel, 1, 32, 0, nullptr, p, index, who);
  return LaunchStatus("LoadOne");
}
absl::Status StoreOne(float* p, long long index, int who) {
  HW_LAUNCH(StoreOneKernel, 1, 32, 0, nullptr, p, index, who);
  return LaunchStatus("StoreOne");
}
absl::Status AddOne(unsigned* p, long long index, int who) {
  HW_LAUNCH(AddOneKernel, 1, 32, 0, nullptr, p, index, who);
  return LaunchStatus("AddOne");
}
absl::Status LoadFour(const float* p, long long index, int who) {
  HW_LAUNCH(LoadFourKernel, 1, 32, 0, nullptr, p, index, who);
  return LaunchStatus("LoadFour");
}
absl::Status ReadShared(int written, int index) {
  HW_LAUNCH(ReadSharedKernel, 1, 1, 0, nullptr, written, index);
  return LaunchStatus("ReadShared");
}
absl::Status WriteShared(int index) {
  HW_LAUNCH(WriteSharedKernel, 1, 1, 0, nullptr, index);
  return LaunchStatus("WriteShared");
}
absl::Status AddShared(int written, int index) {
  HW_LAUNCH(AddSharedKernel, 1, 1, 0, nullptr, written, index);
  return LaunchStatus("AddShared");
}
absl::Status ReadSharedFour(int written, int index) {
  HW_LAUNCH(ReadSharedFourKernel, 1, 1, 0, nullptr, written, index);
  return LaunchStatus("ReadSharedFour");
}
absl::Status ReadDynamic(int bytes, int offset, int written, int index) {
  HW_LAUNCH(ReadDynamicKernel, 1, 1, bytes, nullptr, offset, written, index);
  return LaunchStatus("ReadDynamic");
}
absl::Status ReadsTheLastBlocksShared() {
  HW_LAUNCH(ReadsTheLastBlocksSharedKernel, 2, 1, 0, nullptr);
  return LaunchStatus("ReadsTheLastBlocksShared");
}
absl::Status LargeShared(int bytes, bool allow) {
  if (allow) {
    cudaFuncSetAttribute(LargeSharedKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  }
  HW_LAUNCH(LargeSharedKernel, 1, 1, bytes, nullptr, bytes);
  return LaunchStatus("LargeShared");
}
absl::Status Recurse(const float* p, int depth, bool load) {
  HW_LAUNCH(RecurseKernel, 1, 32, 0, nullptr, p, depth, load);
  return LaunchStatus("Recurse");
}
absl::Status LargeFrame(const float* p) {
  HW_LAUNCH(LargeFrameKernel, 1, 32, 0, nullptr, p);
  return LaunchStatus("LargeFrame");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
