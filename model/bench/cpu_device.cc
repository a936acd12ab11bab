#include "model/bench/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/split_mix.h"
#include "core/base/status_macros.h"
#include "kernels/adamw/adamw.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "kernels/muon_step/muon_step.h"
#include "model/bench/batches.h"
#include "model/bench/decoder_units.h"
#include "model/bench/muon_work.h"
#include "model/decoder.h"
#include "model/storage_pool.h"
#include "model/train/run_config.h"
#include "optim/optimizer.h"
#include "optim/settings.h"

namespace headwise {
namespace {

constexpr std::int64_t kProductSide = 1024;
constexpr std::int64_t kCopyPiece = std::int64_t{1} << 18;

class CpuModel : public BenchModel {
 public:
  CpuModel(const RunConfig& config, std::unique_ptr<Decoder> decoder,
           std::unique_ptr<Optimizer> optimizer, ThreadPool& pool)
      : config_(config),
        decoder_(std::move(decoder)),
        optimizer_(std::move(optimizer)),
        pool_(pool) {}

  absl::StatusOr<std::unique_ptr<UnitRunner>> Train(std::int64_t tokens) override {
    auto batch = std::make_shared<TokenBatch>(RandomTrainingBatch(
        tokens, config_.training().sequence_length(), config_.model().vocab_size()));
    HW_CHECK(optimizer_ != nullptr) << "a model for inference does not train";
    return std::make_unique<HostRunner>(nullptr, [this, batch, tokens]() -> absl::Status {
      decoder_->ForwardBackward(*batch, 1.0 / static_cast<double>(tokens), pool_);
      const StepReport report = optimizer_->Step(0, config_.training().steps(), pool_);
      HW_RETURN_IF_ERROR(CheckTimedStep(report));
      decoder_->WeightsChanged(pool_);
      return absl::OkStatus();
    });
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
  std::unique_ptr<Optimizer> optimizer_;  // null in inference
  ThreadPool& pool_;
};

class CpuBenchDevice : public BenchDevice {
 public:
  explicit CpuBenchDevice(int threads) : pool_(threads) {}

  std::string name() const override { return "cpu"; }
  std::string Describe() const override {
    return absl::StrCat("cpu, ", threads(), threads() == 1 ? " thread" : " threads");
  }
  int threads() const override { return pool_.num_threads(); }
  double memory_bytes() const override {
    return static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<double>(sysconf(_SC_PAGESIZE));
  }
  bool has_unfused_qkv(const ModelConfig&) const override { return true; }

  absl::StatusOr<std::unique_ptr<BenchModel>> MakeModel(const RunConfig& config, DecoderMode mode,
                                                        bool unfused_qkv) override {
    ModelConfig model = config.model();
    model.mutable_attention()->set_unfused_qkv(unfused_qkv);
    DecoderOptions options = DecoderOptionsOf(config.training());
    options.mode = mode;
    HW_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::Create(model, options));
    decoder->Initialize(config.training().seed());
    decoder->WeightsChanged(pool_);
    std::unique_ptr<Optimizer> optimizer;
    if (mode == DecoderMode::kTraining) {
      HW_ASSIGN_OR_RETURN(optimizer, Optimizer::Create(config.optimizer(), decoder->parameters()));
    }
    return std::make_unique<CpuModel>(config, std::move(decoder), std::move(optimizer), pool_);
  }

  OpContext Context(const RunConfig& config) override {
    const DecoderOptions options = DecoderOptionsOf(config.training());
    return {.compute = options.compute, .gemm = options.gemm, .pool = &pool_, .storage = &storage_};
  }

  Tensor Random(Shape shape, DType dtype) override {
    Tensor tensor = Tensor::Empty(std::move(shape), dtype, Device::kCpu);
    const std::uint64_t seed = ++seed_;
    const auto value = [seed](std::int64_t i) {
      const std::uint64_t bits =
          SplitMixScramble(seed + static_cast<std::uint64_t>(i + 1) * kSplitMixIncrement);
      return static_cast<float>(static_cast<std::int64_t>(bits)) * 0x1p-64f;
    };
    if (dtype == DType::kBF16) {
      Fill<BFloat16>(tensor, value);
    } else {
      Fill<float>(tensor, value);
    }
    return tensor;
  }

  Tensor Zeros(Shape shape, DType dtype) override {
    return Tensor::Zeros(std::move(shape), dtype, Device::kCpu);
  }
  Tensor ToDevice(const Tensor& host) override { return host; }

  std::unique_ptr<UnitRunner> Time(KernelWork work) override {
    const auto done = [](const std::function<void()>& f) {
      return [f] {
        if (f) f();
        return absl::OkStatus();
      };
    };
    return std::make_unique<HostRunner>(done(work.prepare), done(work.run));
  }

  KernelWork CrossEntropy(const LogitTransform& op, std::int64_t tokens, std::int64_t vocabulary,
                          DType compute) override {
    const Tensor z = Random({tokens, vocabulary}, DType::kF32);
    const Tensor losses = Zeros({tokens}, DType::kF32);
    const Tensor dz = Zeros({tokens, vocabulary}, compute);
    auto targets = std::make_shared<std::vector<std::int32_t>>(RandomTokens(tokens, vocabulary, 2));
    return KernelWork([=, this] {
      const auto run = [&]<typename T>(RowSpan<T> gradient) {
        headwise::CrossEntropy<T>(
            op, z.Rows<const float>(), *targets, 1.0 / static_cast<double>(tokens),
            absl::MakeSpan(losses.data<float>(), losses.size()), gradient, pool_);
      };
      compute == DType::kBF16 ? run(dz.Rows<BFloat16>()) : run(dz.Rows<float>());
    });
  }

  KernelWork AdamW(std::int64_t elements) override {
    const Tensor weight = Random({elements}, DType::kF32),
                 gradient = Random({elements}, DType::kF32);
    const Tensor m = Zeros({elements}, DType::kF32), v = Zeros({elements}, DType::kF32);
    return KernelWork([=, this] {
      const auto span = [](const Tensor& t) { return absl::MakeSpan(t.data<float>(), t.size()); };
      AdamWStep<float>({}, 1, 1.0, span(weight), span(m), span(v), span(gradient), pool_);
    });
  }

  absl::StatusOr<KernelWork> MuonStep(const RunConfig& config) override {
    HW_RETURN_IF_ERROR(CheckComputeMode(config.optimizer(), /*tensor_cores=*/false, /*ranks=*/1));
    HW_ASSIGN_OR_RETURN(const std::shared_ptr<MuonWork> work, MakeMuonWork(config, *this));
    return KernelWork([work, this] {
      const absl::Status stepped =
          headwise::MuonStep<float>(work->settings.muon, work->weights, pool_);
      HW_CHECK(stepped.ok()) << stepped;
    });
  }

  KernelWork Copy(std::int64_t bytes) override {
    const std::int64_t half = std::max<std::int64_t>(1, bytes / 2);
    // Of pages that were never written the system would keep one for all of them.
    const Tensor from = Random({(half + 3) / 4}, DType::kF32), to = from.Clone();
    return KernelWork([=, this] {
      pool_.ParallelFor((half + kCopyPiece - 1) / kCopyPiece, [&](std::int64_t i) {
        const std::int64_t begin = i * kCopyPiece, count = std::min(kCopyPiece, half - begin);
        std::memcpy(static_cast<char*>(to.raw_data()) + begin,
                    static_cast<const char*>(from.raw_data()) + begin,
                    static_cast<std::size_t>(count));
      });
    });
  }

  KernelWork Product(DType compute) override {
    const Shape square = {kProductSide, kProductSide};
    const Tensor x = Random(square, compute), w = Random(square, compute),
                 y = Zeros(square, compute);
    return KernelWork([=, this] {
      if (compute == DType::kBF16) {
        LinearForward<BFloat16, BFloat16>(GemmBackend::kOneDnn, x.Rows<const BFloat16>(),
                                          w.Rows<const BFloat16>(), {}, y.Rows<BFloat16>(), pool_);
      } else {
        LinearForward<float, float>(GemmBackend::kOneDnn, x.Rows<const float>(),
                                    w.Rows<const float>(), {}, y.Rows<float>(), pool_);
      }
    });
  }
  double product_flops() const override { return 2.0 * kProductSide * kProductSide * kProductSide; }

 private:
  template <typename T, typename Value>
  void Fill(const Tensor& tensor, const Value& value) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 16;
    T* data = tensor.data<T>();
    pool_.ParallelFor((tensor.size() + kPiece - 1) / kPiece, [&](std::int64_t piece) {
      const std::int64_t end = std::min(tensor.size(), (piece + 1) * kPiece);
      for (std::int64_t i = piece * kPiece; i < end; ++i) data[i] = Narrow<T>(value(i));
    });
  }

  ThreadPool pool_;
  StoragePool storage_;
  std::uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<BenchDevice> MakeCpuBenchDevice(int threads) {
  return std::make_unique<CpuBenchDevice>(threads);
}

}  // namespace headwise
