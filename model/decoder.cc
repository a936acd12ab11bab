#include "model/decoder.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/rope/rotary_scaling.h"
#include "core/rope/rotary_table.h"
#include "kernels/launchers/emulated.h"
#include "model/config.h"
#include "model/decoder_options.h"
#include "model/gpu/batch.h"
#include "model/gpu/tensors.h"
#include "model/kv_cache.h"
#include "model/layer.h"
#include "model/norm_site.h"
#include "model/ops.h"
#include "model/output_head.h"
#include "model/parameter_store.h"
#include "model/sequence_info.h"
#include "model/storage_pool.h"

namespace headwise {
namespace {

class DecoderImpl final : public Decoder {
 public:
  // config is valid and resolved.
  DecoderImpl(const ModelConfig& config, const DecoderOptions& options,
              std::optional<RotaryTable> rotary);

  const ModelConfig& config() const override { return config_; }
  const DecoderOptions& options() const override { return options_; }
  const std::vector<Parameter*>& parameters() override { return store_.parameters(); }

  void Initialize(std::uint64_t seed) override;
  void WeightsChanged(ThreadPool& pool) override { store_.RefreshCopies(Context(&pool)); }
  double ForwardBackward(const TokenBatch& batch, double loss_scale, ThreadPool& pool) override;
  double Loss(const TokenBatch& batch, ThreadPool& pool) override;
  double auxiliary_loss() const override { return auxiliary_loss_; }
  void EnqueueForwardBackward(const GpuBatch& batch) override;
  void EnqueueLoss(const GpuBatch& batch) override;
  std::int64_t activation_allocations() const override { return storage_.allocations(); }
  std::int64_t peak_activation_bytes() const override { return storage_.peak_bytes_in_use(); }
  std::int64_t weight_copy_bytes() const override { return store_.copy_bytes(); }
  absl::StatusOr<std::unique_ptr<KvCache>> NewCache(std::int64_t rows,
                                                    std::int64_t max_tokens) const override;
  Tensor Extend(KvCache& cache, absl::Span<const std::vector<std::int32_t>> tokens,
                ThreadPool& pool) override;

 private:
  // A batch as embedding, layers and head take it.
  struct Pass {
    ops::TokenIds inputs, targets;
    SequenceInfo sequence;
  };

  OpContext Context(ThreadPool* pool) {
    return {.device = options_.device,
            .compute = options_.compute,
            .gemm = options_.gemm,
            .launchers = Launchers(),
            .gpu = options_.gpu,
            .rotary = {.cos = ElementsOrNull(rotary_cos_), .sin = ElementsOrNull(rotary_sin_)},
            .pool = pool,
            .storage = &storage_,
            .sharding = options_.sharding};
  }
  const KernelLaunchers* Launchers() const {
    if (options_.device == Device::kCuda) return options_.launchers;
    return options_.kernels == Kernels::kCudaEmulated ? &EmulatedLaunchers() : nullptr;
  }
  static const float* ElementsOrNull(const Tensor& tensor) {
    return tensor.defined() ? tensor.data<float>() : nullptr;
  }
  // Idle memory of other shapes would add to the peak; on a GPU graphs may use it.
  void TrimUnlessTokens(std::int64_t tokens) {
    if (tokens != last_tokens_ && options_.device != Device::kCuda) storage_.Trim();
    last_tokens_ = tokens;
  }
  void CheckBatch(const TokenBatch& batch) const;
  void CheckTraining() const;
  // What every pass begins with.
  Pass BeginPass(const TokenBatch& batch, double loss_scale);
  Pass BeginPass(const GpuBatch& batch);
  OpContext ContextOf(const GpuBatch& batch);
  OpContext ContextOf(const KvCache& cache);
  // The passes. *loss as of ops::SumLosses.
  void RunLoss(const OpContext& ctx, const Pass& pass, double* loss);
  void RunForwardBackward(const OpContext& ctx, const Pass& pass, double* loss);
  // The batch in memory of the GPU that is kept for this.
  const GpuBatch& UploadBatch(const TokenBatch& batch, double loss_scale);
  // Appends the tokens of the active rows, those that get some, to the cache, in chunks; writes
  // these rows of logits [rows, V].
  void RunExtend(const OpContext& ctx, KvCache& cache,
                 absl::Span<const std::vector<std::int32_t>> tokens,
                 absl::Span<const std::int64_t> active, const Tensor& logits);
  // Embedding and layers of the cache's pass.
  Tensor RunLayers(const OpContext& ctx, KvCache& cache);
  // On a GPU, to the cache's memory: any tokens, kernel by kernel; one token for every row, from a
  // graph, which the first such call captures; what is captured.
  absl::Status ExtendOnGpu(KvCache& cache, absl::Span<const std::vector<std::int32_t>> tokens,
                           absl::Span<const std::int64_t> active);
  absl::Status LaunchDecode(KvCache& cache, absl::Span<const std::vector<std::int32_t>> tokens);
  absl::Status EnqueueDecode(KvCache& cache);
  // The loss; leaves the auxiliary loss.
  double ReadLosses(const GpuBatch& batch);
  std::vector<Parameter*> OwnParameters() const;
  void UploadRotaryTable();

  ModelConfig config_;
  DecoderOptions options_;
  std::optional<RotaryTable> rotary_;  // where some layer rotates
  Tensor rotary_cos_, rotary_sin_;     // its values on a GPU
  std::optional<GpuBatch> batch_;      // UploadBatch()
  StoragePool storage_;
  std::int64_t last_tokens_ = 0;
  double auxiliary_loss_ = 0;
  double loss_scale_ = 0;  // of the last pass over a batch on the host
  ParameterStore store_;
  // In this order, which is that of the parameters.
  LinearWeight embedding_;  // .compute only where the head is tied to it
  NormSite embedding_norm_;
  std::deque<Layer> layers_;
  OutputHead head_;
};

RotaryScaling ScalingOf(const RopeScaling& s) {
  switch (s.kind()) {
    case ROPE_LINEAR:
      return LinearScaling{.factor = s.factor()};
    case ROPE_LLAMA3:
      return Llama3Scaling{.factor = s.factor(),
                           .low_freq_factor = s.low_freq_factor(),
                           .high_freq_factor = s.high_freq_factor(),
                           .original_max_position = s.original_max_position()};
    case ROPE_YARN:
      return YarnScaling{.factor = s.factor(),
                         .original_max_position = s.original_max_position(),
                         .beta_fast = s.beta_fast(),
                         .beta_slow = s.beta_slow(),
                         .truncate = !s.exact_ramp(),
                         .attention_factor = s.attention_factor(),
                         .mscale = std::nullopt,
                         .mscale_all_dim = std::nullopt};
    default:
      return NoScaling{};
  }
}

// A matrix that products read only where the head is tied to it.
LinearWeight MakeEmbedding(const ModelConfig& config, ParameterStore& store) {
  const Init init = Init::Normal(config.init().embedding_std());
  const char* name = "embedding.weight";
  const std::vector<Dim> shape = {{{"V", config.vocab_size()}}, {{"N", config.dim()}}};
  if (config.tied_head()) return store.AddLinear(name, ParameterRole::kEmbedding, shape, init);
  return {.parameter = store.Add(name, ParameterRole::kEmbedding, shape, init)};
}

std::deque<Layer> MakeLayers(const ModelConfig& config, const RotaryTable* rotary,
                             ParameterStore& store) {
  std::deque<Layer> layers;
  for (std::int64_t l = 0; l < config.num_layers(); ++l) {
    layers.emplace_back(config, l, rotary, store);
  }
  return layers;
}

DecoderImpl::DecoderImpl(const ModelConfig& config, const DecoderOptions& options,
                         std::optional<RotaryTable> rotary)
    : config_(config),
      options_(options),
      rotary_(std::move(rotary)),
      storage_(options.device == Device::kCuda ? StoragePool(Device::kCuda, BlocksOf(*options.gpu))
                                               : StoragePool()),
      store_({.compute = options.compute,
              .device = options.device,
              .sharding = options.sharding,
              .gpu = options.gpu,
              .gradients = options.mode == DecoderMode::kTraining}),
      embedding_(MakeEmbedding(config, store_)),
      embedding_norm_(config.embedding_norm(), "embedding_norm", {{"N", config.dim()}}, store_),
      layers_(MakeLayers(config, rotary_.has_value() ? &*rotary_ : nullptr, store_)),
      head_(config, embedding_, store_) {
  if (options.device == Device::kCuda && rotary_.has_value()) UploadRotaryTable();
}

void DecoderImpl::UploadRotaryTable() {
  const Shape shape = {rotary_->length(), rotary_->rotary_dim() / 2};
  const auto upload = [&](const float* values) {
    Tensor tensor = EmptyOnGpu(*options_.gpu, shape, DType::kF32);
    const absl::Status uploaded = options_.gpu->Upload(tensor.raw_data(), values, tensor.bytes());
    HW_CHECK(uploaded.ok()) << uploaded;
    return tensor;
  };
  rotary_cos_ = upload(rotary_->Cos(0));
  rotary_sin_ = upload(rotary_->Sin(0));
}

void DecoderImpl::Initialize(std::uint64_t seed) {
  store_.Initialize(seed);
  ThreadPool pool(1);
  WeightsChanged(pool);
}

void DecoderImpl::CheckBatch(const TokenBatch& batch) const {
  HW_CHECK_EQ(batch.targets.size(), batch.inputs.size());
  HW_CHECK_EQ(batch.positions.size(), batch.inputs.size());
  if (options_.sharding != nullptr) {
    HW_CHECK_EQ(static_cast<std::int64_t>(batch.inputs.size()), options_.sharding->local_tokens())
        << "tokens of this rank";
  }
}

void DecoderImpl::CheckTraining() const {
  HW_CHECK(options_.mode == DecoderMode::kTraining)
      << "a decoder of DecoderMode::kInference has no gradients: a backward pass needs "
         "DecoderMode::kTraining";
}

DecoderImpl::Pass DecoderImpl::BeginPass(const TokenBatch& batch, double loss_scale) {
  CheckBatch(batch);
  TrimUnlessTokens(static_cast<std::int64_t>(batch.inputs.size()));
  auxiliary_loss_ = 0;
  loss_scale_ = loss_scale;
  Pass pass = {.inputs = {.ids = batch.inputs},
               .targets = {.ids = batch.targets},
               .sequence = {.positions = {.values = batch.positions},
                            .segments = batch.segments,
                            .loss_scale = {.value = &loss_scale_},
                            .auxiliary_loss = &auxiliary_loss_}};
  if (options_.sharding != nullptr) {
    options_.sharding->checker().BeginPass();
    const Sharding::Inputs& inputs = options_.sharding->inputs();
    pass.inputs.layout = inputs.tokens;
    pass.targets.layout = inputs.targets;
    pass.sequence.positions.layout = inputs.positions;
    pass.sequence.loss_scale.layout = inputs.loss_scale;
  }
  return pass;
}

DecoderImpl::Pass DecoderImpl::BeginPass(const GpuBatch& batch) {
  const absl::Status cleared = batch.ClearOutcome();
  HW_CHECK(cleared.ok()) << cleared;
  return {.inputs = {.ids = batch.inputs()},
          .targets = {.ids = batch.targets()},
          .sequence = {.positions = {.values = batch.positions()},
                       .segments = batch.segments(),
                       .loss_scale = {.value = batch.loss_scale()},
                       .auxiliary_loss = batch.auxiliary_loss()}};
}

OpContext DecoderImpl::ContextOf(const GpuBatch& batch) {
  HW_CHECK(options_.device == Device::kCuda)
      << "a batch on a GPU for a decoder on " << options_.device;
  OpContext ctx = Context(nullptr);
  ctx.faults = batch.faults();
  return ctx;
}

const GpuBatch& DecoderImpl::UploadBatch(const TokenBatch& batch, double loss_scale) {
  if (!batch_.has_value() || !batch_->Fits(batch)) {
    batch_.emplace(*options_.gpu,
                   GpuBatch::Size{.tokens = static_cast<std::int64_t>(batch.inputs.size()),
                                  .segments = static_cast<std::int64_t>(batch.segments.size())});
  }
  const absl::Status uploaded = batch_->Upload(batch, loss_scale);
  HW_CHECK(uploaded.ok()) << uploaded;
  return *batch_;
}

double DecoderImpl::ReadLosses(const GpuBatch& batch) {
  const absl::StatusOr<GpuBatch::Outcome> outcome = batch.ReadOutcome();
  HW_CHECK(outcome.ok()) << outcome.status();
  auxiliary_loss_ = outcome->auxiliary_loss;
  return outcome->loss;
}

std::vector<Parameter*> DecoderImpl::OwnParameters() const {
  std::vector<Parameter*> own;
  for (Parameter* parameter : store_.parameters()) {
    if (parameter->name.rfind("layers.", 0) != 0) own.push_back(parameter);
  }
  return own;
}

void DecoderImpl::EnqueueLoss(const GpuBatch& batch) {
  RunLoss(ContextOf(batch), BeginPass(batch), batch.loss());
}

void DecoderImpl::EnqueueForwardBackward(const GpuBatch& batch) {
  CheckTraining();
  RunForwardBackward(ContextOf(batch), BeginPass(batch), batch.loss());
}

double DecoderImpl::Loss(const TokenBatch& batch, ThreadPool& pool) {
  if (options_.device == Device::kCuda) {
    const GpuBatch& on_gpu = UploadBatch(batch, /*loss_scale=*/0);
    EnqueueLoss(on_gpu);
    return ReadLosses(on_gpu);
  }
  double loss = 0;
  RunLoss(Context(&pool), BeginPass(batch, 0), &loss);
  return loss;
}

double DecoderImpl::ForwardBackward(const TokenBatch& batch, double loss_scale, ThreadPool& pool) {
  CheckTraining();
  if (options_.device == Device::kCuda) {
    const GpuBatch& on_gpu = UploadBatch(batch, loss_scale);
    EnqueueForwardBackward(on_gpu);
    return ReadLosses(on_gpu);
  }
  double loss = 0;
  RunForwardBackward(Context(&pool), BeginPass(batch, loss_scale), &loss);
  return loss;
}

void DecoderImpl::RunLoss(const OpContext& ctx, const Pass& pass, double* loss) {
  const Tensor looked_up = ops::Embedding(ctx, pass.inputs, embedding_.parameter->value);
  Tensor h = embedding_norm_.Forward(ctx, ops::Cross(ctx, "embedding.out", looked_up));
  for (const Layer& layer : layers_) h = layer.Forward(ctx, h, pass.sequence, nullptr);
  head_.Loss(ctx, h, pass.targets, pass.sequence.loss_scale, loss, nullptr);
}

void DecoderImpl::RunForwardBackward(const OpContext& ctx, const Pass& pass, double* loss) {
  const SequenceInfo& sequence = pass.sequence;
  Tensor embedded = ops::Cross(ctx, "embedding.out",
                               ops::Embedding(ctx, pass.inputs, embedding_.parameter->value));
  Tensor h = embedding_norm_.Forward(ctx, embedded);
  if (!embedding_norm_.present()) embedded = Tensor();
  std::vector<Layer::Saved> saved(layers_.size());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    h = layers_[l].Forward(ctx, h, sequence, &saved[l]);
  }

  Tensor dh;
  head_.Loss(ctx, h, pass.targets, sequence.loss_scale, loss, &dh);
  if (options_.sharding != nullptr) options_.sharding->checker().EnterBackward();
  h = Tensor();
  for (std::size_t l = layers_.size(); l-- > 0;) {
    dh = layers_[l].Backward(ctx, dh, sequence, std::exchange(saved[l], {}));
  }
  dh = ops::CrossBackward(ctx, "embedding.out", embedding_norm_.Backward(ctx, embedded, dh));
  Tensor& gradient = embedding_.parameter->gradient;
  const Tensor& table = embedding_.parameter->value;
  if (!config_.tied_head()) {
    ops::EmbeddingBackward(ctx, pass.inputs, table, dh, gradient);
  } else {
    // The head has written its part.
    Tensor looked_up = ctx.Empty(gradient.shape(), ctx.master());
    ops::EmbeddingBackward(ctx, pass.inputs, table, dh, looked_up);
    ops::AddMasterInPlace(ctx, gradient, looked_up);
  }
  if (options_.sharding != nullptr) {
    NoteGradients(options_.sharding, OwnParameters());
    options_.sharding->checker().Finish();
  }
}

absl::StatusOr<std::unique_ptr<KvCache>> DecoderImpl::NewCache(std::int64_t rows,
                                                               std::int64_t max_tokens) const {
  if (rows < 1) return absl::InvalidArgumentError(absl::StrCat("a cache needs rows, not ", rows));
  if (max_tokens < 1 || max_tokens > config_.max_sequence_length()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a cache of ", max_tokens, " tokens per row: must be from 1 to model.max_sequence_length ",
        config_.max_sequence_length()));
  }
  if (options_.sharding != nullptr) {
    return absl::UnimplementedError("decoding runs on one rank: no cache with layouts");
  }
  if (options_.compute == DType::kF64) {
    return absl::InvalidArgumentError("no cache in double precision: it is for gradient tests");
  }
  KvCache::Layout layout = {
      .rows = rows,
      .max_tokens = max_tokens,
      .kv_width = config_.attention().num_kv_heads() * config_.attention().head_dim(),
      .dtype = options_.compute,
      .device = options_.device,
      .windows = {},
      .gpu = options_.gpu,
      .vocab_size = config_.vocab_size(),
      .owner = this};
  for (std::int64_t l = 0; l < config_.num_layers(); ++l) {
    layout.windows.push_back(LayerWindow(config_, l));
  }
  return KvCache::Create(layout);
}

// The next chunk of each row; `done` counts the tokens of each row that earlier passes took.
KvCache::Pass NextPass(absl::Span<const std::vector<std::int32_t>> tokens,
                       std::vector<std::int64_t>& done) {
  KvCache::Pass next;
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    const auto left = static_cast<std::int64_t>(tokens[r].size()) - done[r];
    const std::int64_t count = std::min(left, kExtendChunk);
    next.begin.push_back(static_cast<std::int64_t>(next.tokens.size()));
    next.count.push_back(count);
    next.tokens.insert(next.tokens.end(), tokens[r].begin() + done[r],
                       tokens[r].begin() + done[r] + count);
    done[r] += count;
  }
  return next;
}

// The rows that get tokens.
std::vector<std::int64_t> ActiveRows(const KvCache& cache,
                                     absl::Span<const std::vector<std::int32_t>> tokens) {
  HW_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), cache.rows());
  std::vector<std::int64_t> active;
  for (std::int64_t r = 0; r < cache.rows(); ++r) {
    const auto count = static_cast<std::int64_t>(tokens[r].size());
    HW_CHECK_LE(cache.length(r) + count, cache.max_tokens()) << "row " << r << " of the cache";
    if (count > 0) active.push_back(r);
  }
  return active;
}

Tensor DecoderImpl::Extend(KvCache& cache, absl::Span<const std::vector<std::int32_t>> tokens,
                           ThreadPool& pool) {
  const std::vector<std::int64_t> active = ActiveRows(cache, tokens);
  const Shape shape = {cache.rows(), config_.vocab_size()};
  if (options_.device != Device::kCuda) {
    Tensor logits = Tensor::Zeros(shape, DType::kF32, options_.device);
    if (!active.empty()) RunExtend(Context(&pool), cache, tokens, active, logits);
    return logits;
  }
  HW_CHECK(cache.owner() == this) << "a cache of another decoder";
  if (active.empty()) return Tensor::Zeros(shape, DType::kF32, Device::kCpu);
  const auto one = [](const std::vector<std::int32_t>& t) { return t.size() == 1; };
  const absl::Status extended = std::all_of(tokens.begin(), tokens.end(), one)
                                    ? LaunchDecode(cache, tokens)
                                    : ExtendOnGpu(cache, tokens, active);
  HW_CHECK(extended.ok()) << extended;
  const absl::StatusOr<Tensor> logits = cache.memory().ReadLogits();
  HW_CHECK(logits.ok()) << logits.status();
  return *logits;
}

OpContext DecoderImpl::ContextOf(const KvCache& cache) {
  OpContext ctx = Context(nullptr);
  ctx.faults = cache.memory().faults();
  return ctx;
}

absl::Status DecoderImpl::ExtendOnGpu(KvCache& cache,
                                      absl::Span<const std::vector<std::int32_t>> tokens,
                                      absl::Span<const std::int64_t> active) {
  const ExtendMemory& memory = cache.memory();
  HW_RETURN_IF_ERROR(memory.ClearFaults());
  const Tensor& logits = memory.logits();
  HW_RETURN_IF_ERROR(options_.gpu->Fill(logits.raw_data(), 0, logits.bytes()));
  RunExtend(ContextOf(cache), cache, tokens, active, logits);
  return absl::OkStatus();
}

absl::Status DecoderImpl::LaunchDecode(KvCache& cache,
                                       absl::Span<const std::vector<std::int32_t>> tokens) {
  std::vector<std::int64_t> done(tokens.size(), 0);
  cache.Begin(ContextOf(cache), NextPass(tokens, done));
  if (cache.decode_graph() == nullptr) {
    // Until all memory that a pass takes is there, and the products' libraries have theirs. A pass
    // may be repeated: it writes the same keys and values to the same places.
    std::int64_t before;
    do {
      before = storage_.allocations();
      HW_RETURN_IF_ERROR(EnqueueDecode(cache));
    } while (storage_.allocations() != before);
    HW_ASSIGN_OR_RETURN(std::unique_ptr<GpuGraph> graph,
                        options_.gpu->Capture([&] { return EnqueueDecode(cache); }));
    cache.set_decode_graph(std::move(graph));
  }
  HW_RETURN_IF_ERROR(cache.decode_graph()->Launch());
  cache.End();
  return absl::OkStatus();
}

absl::Status DecoderImpl::EnqueueDecode(KvCache& cache) {
  const OpContext ctx = ContextOf(cache);
  HW_RETURN_IF_ERROR(cache.memory().ClearFaults());
  const Tensor logits = head_.Logits(ctx, RunLayers(ctx, cache));
  ops::CopyRows(ctx, logits, 0, cache.memory().logits(), 0, cache.rows());
  return absl::OkStatus();
}

Tensor DecoderImpl::RunLayers(const OpContext& ctx, KvCache& cache) {
  Tensor h = embedding_norm_.Forward(
      ctx, ops::Embedding(ctx, {.ids = cache.tokens()}, embedding_.parameter->value));
  for (const Layer& layer : layers_) h = layer.Extend(ctx, h, cache);
  return h;
}

void DecoderImpl::RunExtend(const OpContext& ctx, KvCache& cache,
                            absl::Span<const std::vector<std::int32_t>> tokens,
                            absl::Span<const std::int64_t> active, const Tensor& logits) {
  // The residual stream after each active row's last token.
  const Tensor last = ctx.Empty({static_cast<std::int64_t>(active.size()), config_.dim()});
  std::vector<std::int64_t> done(tokens.size(), 0);
  for (KvCache::Pass next = NextPass(tokens, done); !next.tokens.empty();
       next = NextPass(tokens, done)) {
    TrimUnlessTokens(static_cast<std::int64_t>(next.tokens.size()));
    cache.Begin(ctx, next);
    const Tensor h = RunLayers(ctx, cache);
    cache.End();
    for (std::size_t i = 0; i < active.size(); ++i) {
      const std::int64_t r = active[i];
      const std::int64_t count = next.count[r];
      if (count == 0) continue;
      ops::CopyRows(ctx, h, next.begin[r] + count - 1, last, static_cast<std::int64_t>(i), 1);
    }
  }
  const Tensor z = head_.Logits(ctx, last);
  for (std::size_t i = 0; i < active.size(); ++i) {
    ops::CopyRows(ctx, z, static_cast<std::int64_t>(i), logits, active[i], 1);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelConfig& config,
                                                         const DecoderOptions& options) {
  HW_RETURN_IF_ERROR(ValidateModelConfig(config));
  HW_RETURN_IF_ERROR(CheckDecoderOptions(config, options));
  const ModelConfig resolved = ResolveModelConfig(config);
  std::optional<RotaryTable> rotary;
  const RopeConfig& rope = resolved.attention().rope();
  bool rotates = false;
  for (std::int64_t l = 0; l < resolved.num_layers(); ++l) rotates |= LayerUsesRope(resolved, l);
  if (rotates) {
    // Nothing reads the table on kMeta, and a long context's takes time to make.
    const std::int64_t length =
        options.device == Device::kMeta ? 0 : resolved.max_sequence_length();
    HW_ASSIGN_OR_RETURN(rotary, RotaryTable::Create({.length = length,
                                                     .rotary_dim = rope.rotary_dim(),
                                                     .theta = rope.theta(),
                                                     .pairing = rope.pairing() == INTERLEAVED
                                                                    ? RotaryPairing::kInterleaved
                                                                    : RotaryPairing::kHalf,
                                                     .scaling = ScalingOf(rope.scaling())}));
  }
  return std::unique_ptr<Decoder>(
      std::make_unique<DecoderImpl>(resolved, options, std::move(rotary)));
}

}  // namespace headwise
