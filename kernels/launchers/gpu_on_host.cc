#include "kernels/launchers/gpu_on_host.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/common/thread_pool.h"
#include "kernels/emulation/emulation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/launchers/device_arena.h"
#include "kernels/launchers/table.h"

namespace headwise {
namespace {

using Work = std::function<absl::Status()>;

class GraphOnHost;

class GpuOnHost final : public Gpu {
 public:
  explicit GpuOnHost(int threads) : pool_(threads) { Streams().insert(stream()); }
  ~GpuOnHost() override { Streams().erase(stream()); }

  // The Gpu of a stream; null if it is of none.
  static GpuOnHost* Of(CUstream_st* stream) {
    return Streams().count(stream) == 0 ? nullptr : reinterpret_cast<GpuOnHost*>(stream);
  }

  std::string Describe() const override { return "a GPU on the host, for tests"; }
  CUstream_st* stream() const override {
    return reinterpret_cast<CUstream_st*>(const_cast<GpuOnHost*>(this));
  }

  absl::StatusOr<std::shared_ptr<void>> Allocate(std::int64_t bytes) override {
    HW_RETURN_IF_ERROR(NotCapturing("Allocate"));
    HW_CHECK(bytes >= 0) << bytes << " bytes";
    if (bytes == 0) return std::shared_ptr<void>();
    void* const data = arena_.Allocate(bytes);
    if (data == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no device memory for ", bytes, " bytes"));
    }
    return std::shared_ptr<void>(data, [this, bytes](void* freed) { arena_.Free(freed, bytes); });
  }

  absl::StatusOr<std::int64_t> FreeMemory() override {
    return DeviceArena::kCapacity - arena_.size();
  }

  absl::Status Copy(void* to, const void* from, std::int64_t bytes) override {
    HW_RETURN_IF_ERROR(InDevice("Copy: to", to, bytes));
    HW_RETURN_IF_ERROR(InDevice("Copy: from", from, bytes));
    const std::int64_t distance = static_cast<std::byte*>(to) - static_cast<const std::byte*>(from);
    if (bytes > 0 && distance < bytes && -distance < bytes) {
      return absl::InvalidArgumentError("Copy: from and to overlap");
    }
    return Enqueue([=, this] { return Touch([=] { std::memcpy(to, from, Size(bytes)); }); });
  }
  absl::Status Fill(void* to, unsigned char byte, std::int64_t bytes) override {
    HW_RETURN_IF_ERROR(InDevice("Fill: to", to, bytes));
    return Enqueue([=, this] { return Touch([=] { std::memset(to, byte, Size(bytes)); }); });
  }

  absl::Status Upload(void* device, const void* host, std::int64_t bytes) override {
    HW_RETURN_IF_ERROR(NotCapturing("Upload"));
    HW_RETURN_IF_ERROR(InDevice("Upload: device", device, bytes));
    HW_RETURN_IF_ERROR(OnHost("Upload: host", host, bytes));
    return Touch([=] { std::memcpy(device, host, Size(bytes)); });
  }
  absl::Status Download(void* host, const void* device, std::int64_t bytes) override {
    HW_RETURN_IF_ERROR(NotCapturing("Download"));
    HW_RETURN_IF_ERROR(InDevice("Download: device", device, bytes));
    HW_RETURN_IF_ERROR(OnHost("Download: host", host, bytes));
    return Touch([=] { std::memcpy(host, device, Size(bytes)); });
  }
  absl::Status Synchronize() override { return NotCapturing("Synchronize"); }

  absl::StatusOr<std::unique_ptr<GpuGraph>> Capture(
      absl::FunctionRef<absl::Status()> enqueue) override;

  // A launch of emulated kernels.
  absl::Status Launch(const Work& launch) {
    ++kernels_;
    return Enqueue([=, this]() -> absl::Status {
      const DeviceArena::Unlock unlock(arena_);
      emulation::Session session({.os_threads = pool_.num_threads()});
      session.AddRegion("device memory", arena_.data(), arena_.size(),
                        emulation::Access::kReadWrite);
      HW_RETURN_IF_ERROR(launch());
      return session.status();
    });
  }

 private:
  template <typename T>
  using In = RowSpan<const T>;
  template <typename T>
  using Out = RowSpan<T>;
  absl::Status Forward(In<float> x, In<float> w, Out<float> y) override {
    return ForwardOf<float, float>(x, w, y);
  }
  absl::Status Forward(In<BFloat16> x, In<BFloat16> w, Out<BFloat16> y) override {
    return ForwardOf<BFloat16, BFloat16>(x, w, y);
  }
  absl::Status Forward(In<BFloat16> x, In<BFloat16> w, Out<float> y) override {
    return ForwardOf<BFloat16, float>(x, w, y);
  }
  absl::Status BackwardInput(In<float> dy, In<float> w, Out<float> dx) override {
    return BackwardInputOf<float, float>(dy, w, dx);
  }
  absl::Status BackwardInput(In<BFloat16> dy, In<BFloat16> w, Out<BFloat16> dx) override {
    return BackwardInputOf<BFloat16, BFloat16>(dy, w, dx);
  }
  absl::Status BackwardInput(In<BFloat16> dy, In<BFloat16> w, Out<float> dx) override {
    return BackwardInputOf<BFloat16, float>(dy, w, dx);
  }
  absl::Status BackwardWeight(In<float> dy, In<float> x, Out<float> dw) override {
    return BackwardWeightOf<float>(dy, x, dw);
  }
  absl::Status BackwardWeight(In<BFloat16> dy, In<BFloat16> x, Out<float> dw) override {
    return BackwardWeightOf<BFloat16>(dy, x, dw);
  }

  template <typename I, typename O>
  absl::Status ForwardOf(In<I> x, In<I> w, Out<O> y) {
    return Multiply(x, w, y, [=, this] {
      headwise::LinearForward<I, O>(GemmBackend::kContract, x, w, {}, y, pool_);
    });
  }
  template <typename I, typename O>
  absl::Status BackwardInputOf(In<I> dy, In<I> w, Out<O> dx) {
    return Multiply(dy, w, dx, [=, this] {
      headwise::LinearBackwardInput<I, O>(GemmBackend::kContract, dy, w, dx, pool_);
    });
  }
  template <typename T>
  absl::Status BackwardWeightOf(In<T> dy, In<T> x, Out<float> dw) {
    return Multiply(dy, x, dw, [=, this] {
      headwise::LinearBackwardWeight<T>(GemmBackend::kContract, dy, x, dw, pool_);
    });
  }
  template <typename A, typename B, typename C, typename Product>
  absl::Status Multiply(A a, B b, C c, Product product) {
    HW_RETURN_IF_ERROR(RowsInDevice(a));
    HW_RETURN_IF_ERROR(RowsInDevice(b));
    HW_RETURN_IF_ERROR(RowsInDevice(c));
    ++kernels_;
    return Enqueue([=, this] { return Touch(product); });
  }

  template <typename Action>
  absl::Status Touch(Action action) {
    const DeviceArena::Unlock unlock(arena_);
    action();
    return absl::OkStatus();
  }

  absl::Status Enqueue(Work work) {
    if (!capturing_) return work();
    captured_.push_back(std::move(work));
    return absl::OkStatus();
  }

  absl::Status NotCapturing(const char* what) const {
    if (!capturing_) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(what, " in the capture of a graph"));
  }
  absl::Status InDevice(const char* what, const void* data, std::int64_t bytes) const {
    if (arena_.Holds(data, bytes)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        arena_.Within(data) ? absl::StrCat(what, ": ", bytes, " bytes go beyond an allocation")
                            : absl::StrCat(what, " is not device memory"));
  }
  absl::Status OnHost(const char* what, const void* data, std::int64_t bytes) const {
    if (bytes == 0 || !arena_.Within(data)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(what, " is device memory"));
  }
  template <typename T>
  absl::Status RowsInDevice(RowSpan<T> m) const {
    const std::int64_t elements = m.rows > 0 ? (m.rows - 1) * m.stride + m.width : 0;
    return InDevice("an operand", m.data, elements * std::int64_t{sizeof(T)});
  }
  static std::size_t Size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

  static std::set<CUstream_st*>& Streams() {
    static std::set<CUstream_st*>* const streams = new std::set<CUstream_st*>;
    return *streams;
  }

  DeviceArena arena_;
  ThreadPool pool_;
  bool capturing_ = false;
  std::vector<Work> captured_;
  int kernels_ = 0;
};

class GraphOnHost final : public GpuGraph {
 public:
  GraphOnHost(std::vector<Work> work, int kernels) : work_(std::move(work)), kernels_(kernels) {}
  absl::Status Launch() override {
    for (const Work& work : work_) HW_RETURN_IF_ERROR(work());
    return absl::OkStatus();
  }
  int kernels() const override { return kernels_; }

 private:
  std::vector<Work> work_;
  int kernels_;
};

absl::StatusOr<std::unique_ptr<GpuGraph>> GpuOnHost::Capture(
    absl::FunctionRef<absl::Status()> enqueue) {
  HW_RETURN_IF_ERROR(NotCapturing("Capture"));
  capturing_ = true;
  captured_.clear();
  const int before = kernels_;
  const absl::Status enqueued = enqueue();
  capturing_ = false;
  std::vector<Work> work = std::exchange(captured_, {});
  HW_RETURN_IF_ERROR(enqueued);
  return std::make_unique<GraphOnHost>(std::move(work), kernels_ - before);
}

// The stream among a launcher's arguments: itself, or a member of a launch.
template <typename Argument>
void FindStream(const Argument& argument, CUstream_st*& stream) {
  if constexpr (std::is_same_v<Argument, CUstream_st*>) {
    stream = argument;
  } else if constexpr (requires { argument.stream; }) {
    stream = argument.stream;
  }
}

// A launcher whose arguments are kept by value.
template <auto launcher>
struct Kept;
template <typename... Arguments, absl::Status (*launcher)(Arguments...)>
struct Kept<launcher> {
  static absl::Status Call(Arguments... arguments) {
    CUstream_st* stream = nullptr;
    (FindStream<std::decay_t<Arguments>>(arguments, stream), ...);
    GpuOnHost* const gpu = GpuOnHost::Of(stream);
    if (gpu == nullptr) return absl::InvalidArgumentError("a launch on a stream of no Gpu");
    return gpu->Launch(
        [... kept = std::decay_t<Arguments>(arguments)] { return launcher(kept...); });
  }
};

}  // namespace

std::unique_ptr<Gpu> CreateGpuOnHost(int threads) { return std::make_unique<GpuOnHost>(threads); }

#define HW_LAUNCHER_OF(...) &Kept<&cuda_emulated::__VA_ARGS__>::Call

const KernelLaunchers& OnHostLaunchers() {
  static constexpr KernelLaunchers kTable = HW_LAUNCHER_TABLE;
  return kTable;
}

}  // namespace headwise
