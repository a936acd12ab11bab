#include "model/bench/gpu_device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/base/split_mix.h"
#include "core/base/status_macros.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/cuda.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/cuda.h"
#include "model/bench/batches.h"
#include "model/bench/decoder_units.h"
#include "model/bench/muon_work.h"
#include "model/decoder.h"
#include "model/gpu/tensors.h"
#include "model/ops/fault.h"
#include "model/qkv_preparation.h"
#include "model/storage_pool.h"
#include "model/train/gpu_training.h"
#include "model/train/run_config.h"

namespace headwise {
namespace {

constexpr double kGraphSeconds = 2e-3;
constexpr double kMostCalls = 200;
// Elements of random numbers that are drawn; more repeat them.
constexpr std::int64_t kDrawn = std::int64_t{1} << 20;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Check(const absl::Status& status) { HW_CHECK(status.ok()) << status; }

// Calls of a kernel in a graph.
class GraphRunner : public UnitRunner {
 public:
  GraphRunner(Gpu& gpu, const StoragePool& storage, KernelWork work)
      : gpu_(gpu), storage_(storage), work_(std::move(work)) {}

  absl::Status Prepare() override {
    if (work_.prepare) work_.prepare();
    if (graph_ == nullptr) HW_RETURN_IF_ERROR(Capture());
    return gpu_.Synchronize();
  }
  absl::Status Run() override {
    const Clock::time_point begin = Clock::now();
    HW_RETURN_IF_ERROR(graph_->Launch());
    HW_RETURN_IF_ERROR(gpu_.Synchronize());
    seconds_ = SecondsSince(begin) / calls_;
    return absl::OkStatus();
  }
  absl::StatusOr<double> Seconds() override { return seconds_; }

 private:
  absl::Status Capture() {
    std::int64_t before;
    double seconds;
    // Until there is the memory that a call takes.
    do {
      before = storage_.allocations();
      HW_RETURN_IF_ERROR(gpu_.Synchronize());
      const Clock::time_point begin = Clock::now();
      work_.run();
      HW_RETURN_IF_ERROR(gpu_.Synchronize());
      seconds = SecondsSince(begin);
    } while (storage_.allocations() != before);
    calls_ = static_cast<int>(std::clamp(std::ceil(kGraphSeconds / seconds), 1.0, kMostCalls));
    HW_ASSIGN_OR_RETURN(graph_, gpu_.Capture([&] {
      for (int i = 0; i < calls_; ++i) work_.run();
      return absl::OkStatus();
    }));
    return absl::OkStatus();
  }

  Gpu& gpu_;
  const StoragePool& storage_;
  KernelWork work_;
  std::unique_ptr<GpuGraph> graph_;
  int calls_ = 1;
  double seconds_ = 0;
};

class GpuModel : public BenchModel {
 public:
  GpuModel(const RunConfig& config, std::unique_ptr<Decoder> decoder,
           std::unique_ptr<GpuTraining> training, ThreadPool& pool)
      : config_(config),
        decoder_(std::move(decoder)),
        training_(std::move(training)),
        pool_(pool) {}

  absl::StatusOr<std::unique_ptr<UnitRunner>> Train(std::int64_t tokens) override {
    auto batch = std::make_shared<std::vector<TokenBatch>>(
        1, RandomTrainingBatch(tokens, config_.training().sequence_length(),
                               config_.model().vocab_size()));
    HW_CHECK(training_ != nullptr) << "a model for inference does not train";
    const auto step = [this, batch, tokens]() -> absl::Status {
      HW_ASSIGN_OR_RETURN(const StepOutcome outcome,
                          training_->Step(*batch, 1.0 / static_cast<double>(tokens), 0,
                                          config_.training().steps(), pool_));
      return CheckTimedStep(outcome.report);
    };
    // Until steps of this size come from a graph.
    const std::int64_t launches = training_->graphs().step.launches;
    while (training_->graphs().step.launches == launches) HW_RETURN_IF_ERROR(step());
    return std::make_unique<HostRunner>(nullptr, step);
  }

  absl::StatusOr<std::unique_ptr<UnitRunner>> Prefill(std::int64_t tokens) override {
    return PrefillRunner(*decoder_, tokens, pool_);
  }

  absl::StatusOr<std::unique_ptr<UnitRunner>> Decode(std::int64_t rows,
                                                     std::int64_t context) override {
    return DecodeRunner(*decoder_, rows, context, pool_);
  }

 private:
  RunConfig config_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<GpuTraining> training_;  // null in inference
  ThreadPool& pool_;
};

class GpuBenchDevice : public BenchDevice {
 public:
  GpuBenchDevice(Gpu& gpu, const KernelLaunchers& launchers, std::int64_t product_side)
      : gpu_(gpu),
        launchers_(launchers),
        product_side_(product_side),
        storage_(Device::kCuda, BlocksOf(gpu)),
        faults_(EmptyOnGpu(gpu, {ops::kFaults}, DType::kI64)) {
    Check(gpu.Fill(faults_.raw_data(), 0xff, faults_.bytes()));
  }

  std::string name() const override { return absl::StrCat("cuda: ", gpu_.Describe()); }
  std::string Describe() const override { return absl::StrCat("cuda, ", gpu_.Describe()); }
  int threads() const override { return pool_.num_threads(); }
  double memory_bytes() const override {
    const absl::StatusOr<std::int64_t> free = gpu_.FreeMemory();
    return free.ok() ? static_cast<double>(*free) : 0;
  }
  bool has_unfused_qkv(const ModelConfig& model) const override {
    return CheckUnfusedQkvOnCuda(model).ok();
  }

  absl::StatusOr<std::unique_ptr<BenchModel>> MakeModel(const RunConfig& config, DecoderMode mode,
                                                        bool unfused_qkv) override {
    RunConfig whole = config;
    whole.mutable_model()->mutable_attention()->set_unfused_qkv(unfused_qkv);
    whole.mutable_training()->set_micro_batches(1);
    DecoderOptions options = DecoderOptionsOf(whole.training());
    options.device = Device::kCuda;
    options.gpu = &gpu_;
    options.launchers = &launchers_;
    options.mode = mode;
    HW_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::Create(whole.model(), options));
    decoder->Initialize(whole.training().seed());
    std::unique_ptr<GpuTraining> training;
    if (mode == DecoderMode::kTraining) {
      HW_ASSIGN_OR_RETURN(training, GpuTraining::Create(whole, *decoder, gpu_, launchers_));
    }
    return std::make_unique<GpuModel>(whole, std::move(decoder), std::move(training), pool_);
  }

  OpContext Context(const RunConfig& config) override {
    return {.device = Device::kCuda,
            .compute = DecoderOptionsOf(config.training()).compute,
            .launchers = &launchers_,
            .gpu = &gpu_,
            .faults = static_cast<std::uint64_t*>(faults_.raw_data()),
            .storage = &storage_};
  }

  Tensor Random(Shape shape, DType dtype) override {
    Tensor tensor = storage_.Empty(std::move(shape), dtype, Device::kCuda);
    const std::int64_t size = SizeOf(dtype), drawn = std::min(tensor.size(), kDrawn);
    const Tensor host = Tensor::Empty({drawn}, dtype, Device::kCpu);
    std::uint64_t seed = ++seed_;
    for (std::int64_t i = 0; i < drawn; ++i) {
      const float value =
          static_cast<float>(static_cast<std::int64_t>(NextSplitMix(seed))) * 0x1p-64f;
      if (dtype == DType::kBF16) {
        host.data<BFloat16>()[i] = Narrow<BFloat16>(value);
      } else {
        host.data<float>()[i] = value;
      }
    }
    auto* const data = static_cast<std::byte*>(tensor.raw_data());
    Check(gpu_.Upload(data, host.raw_data(), host.bytes()));
    for (std::int64_t begin = drawn; begin < tensor.size(); begin += drawn) {
      Check(gpu_.Copy(data + begin * size, data, std::min(drawn, tensor.size() - begin) * size));
    }
    return tensor;
  }

  Tensor Zeros(Shape shape, DType dtype) override {
    Tensor tensor = storage_.Empty(std::move(shape), dtype, Device::kCuda);
    Check(gpu_.Fill(tensor.raw_data(), 0, tensor.bytes()));
    return tensor;
  }

  Tensor ToDevice(const Tensor& host) override {
    Tensor tensor = storage_.Empty(host.shape(), host.dtype(), Device::kCuda);
    Check(Upload(gpu_, host, tensor));
    return tensor;
  }

  std::unique_ptr<UnitRunner> Time(KernelWork work) override {
    return std::make_unique<GraphRunner>(gpu_, storage_, std::move(work));
  }

  KernelWork CrossEntropy(const LogitTransform& op, std::int64_t tokens, std::int64_t vocabulary,
                          DType compute) override {
    const Tensor z = Random({tokens, vocabulary}, DType::kF32);
    const Tensor losses = Zeros({tokens}, DType::kF32);
    const Tensor dz = Zeros({tokens, vocabulary}, compute);
    std::vector<std::int32_t> drawn = RandomTokens(tokens, vocabulary, 2);
    const Tensor targets = ToDevice(Tensor::Borrow(drawn.data(), {tokens}));
    const Tensor loss_scale = OnGpu(1.0 / static_cast<double>(tokens));
    return KernelWork([=, this] {
      const auto run = [&]<typename T>(RowSpan<T> gradient) {
        Check(launchers_.Of<T>().CrossEntropy(
            op, z.Rows<const float>(), Span<std::int32_t>(targets),
            static_cast<const double*>(loss_scale.raw_data()), Span<float>(losses), gradient,
            static_cast<std::uint64_t*>(faults_.raw_data()), gpu_.stream()));
      };
      compute == DType::kBF16 ? run(dz.Rows<BFloat16>()) : run(dz.Rows<float>());
    });
  }

  KernelWork AdamW(std::int64_t elements) override {
    const Tensor weight = Random({elements}, DType::kF32),
                 gradient = Random({elements}, DType::kF32);
    const Tensor m = Zeros({elements}, DType::kF32), v = Zeros({elements}, DType::kF32);
    const AdamWTensors tensors = {Span<float>(weight), Span<float>(m), Span<float>(v),
                                  Span<float>(gradient)};
    absl::StatusOr<AdamWPlan> made = AdamWPlan::Create({&tensors, 1});
    Check(made.status());
    const auto plan = std::make_shared<AdamWPlan>(*std::move(made));
    const auto bytes = static_cast<std::int64_t>(plan->table().size());
    const Tensor table = storage_.Empty({bytes}, DType::kU8, Device::kCuda);
    Check(gpu_.Upload(table.raw_data(), plan->table().data(), bytes));
    const Tensor factors = OnGpu(MakeAdamWFactors<float>({}, 1, 1.0));
    return KernelWork([=, this] {
      Check(launchers_.AdamWStep(
          *plan, {.stream = gpu_.stream(),
                  .table = static_cast<const std::byte*>(table.raw_data()),
                  .factors = static_cast<const AdamWFactors<float>*>(factors.raw_data())}));
      static_cast<void>(weight), static_cast<void>(m), static_cast<void>(v);  // keeps them
      static_cast<void>(gradient);
    });
  }

  absl::StatusOr<KernelWork> MuonStep(const RunConfig& config) override {
    HW_ASSIGN_OR_RETURN(const std::shared_ptr<MuonWork> work, MakeMuonWork(config, *this));
    HW_ASSIGN_OR_RETURN(
        MuonStepPlan made,
        MuonStepPlan::Create<float>(work->settings.muon, work->weights, work->settings.muon_mode));
    const auto plan = std::make_shared<MuonStepPlan>(std::move(made));
    const auto bytes = static_cast<std::int64_t>(plan->table().size());
    const Tensor table = storage_.Empty({bytes}, DType::kU8, Device::kCuda);
    HW_RETURN_IF_ERROR(gpu_.Upload(table.raw_data(), plan->table().data(), bytes));
    const Tensor scratch = storage_.Empty({plan->scratch_bytes()}, DType::kU8, Device::kCuda);
    const Tensor scalars =
        OnGpu(MuonStepScalars{.learning_rate = work->settings.muon.learning_rate});
    return KernelWork([=, this] {
      Check(launchers_.MuonStep(*plan,
                                {.stream = gpu_.stream(),
                                 .table = static_cast<const std::byte*>(table.raw_data()),
                                 .scalars = static_cast<const MuonStepScalars*>(scalars.raw_data()),
                                 .scratch = static_cast<std::byte*>(scratch.raw_data())}));
      static_cast<void>(work);  // keeps the weights
    });
  }

  KernelWork Copy(std::int64_t bytes) override {
    const std::int64_t half = std::max<std::int64_t>(1, bytes / 2);
    const Tensor from = Zeros({half}, DType::kU8), to = Zeros({half}, DType::kU8);
    return KernelWork([=, this] { Check(gpu_.Copy(to.raw_data(), from.raw_data(), half)); });
  }

  KernelWork Product(DType compute) override {
    const Shape square = {product_side_, product_side_};
    const Tensor x = Random(square, compute), w = Random(square, compute),
                 y = Zeros(square, compute);
    return KernelWork([=, this] {
      const auto run = [&]<typename T>(RowSpan<T> out) {
        Check(gpu_.LinearForward<T, T>(x.Rows<const T>(), w.Rows<const T>(), out));
      };
      compute == DType::kBF16 ? run(y.Rows<BFloat16>()) : run(y.Rows<float>());
    });
  }
  double product_flops() const override {
    const auto side = static_cast<double>(product_side_);
    return 2 * side * side * side;
  }

 private:
  template <typename T>
  static absl::Span<T> Span(const Tensor& tensor) {
    return absl::MakeSpan(tensor.data<T>(), static_cast<std::size_t>(tensor.size()));
  }
  // One value, by its bytes.
  template <typename T>
  Tensor OnGpu(const T& value) {
    Tensor tensor = storage_.Empty({sizeof(T)}, DType::kU8, Device::kCuda);
    Check(gpu_.Upload(tensor.raw_data(), &value, sizeof(T)));
    return tensor;
  }

  Gpu& gpu_;
  const KernelLaunchers& launchers_;
  const std::int64_t product_side_;
  ThreadPool pool_{1};
  StoragePool storage_;
  Tensor faults_;
  std::uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<BenchDevice> MakeGpuBenchDevice(Gpu& gpu, const KernelLaunchers& launchers,
                                                std::int64_t product_side) {
  return std::make_unique<GpuBenchDevice>(gpu, launchers, product_side);
}

}  // namespace headwise
