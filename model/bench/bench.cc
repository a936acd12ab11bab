#include "model/bench/bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "kernels/common/thread_pool.h"
#include "model/bench/batches.h"
#include "model/bench/kernel_cases.h"
#include "model/bench/traffic.h"
#include "model/counts.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/report/progress.h"
#include "model/train/run_config.h"
#include "optim/groups.h"
#include "optim/settings.h"

namespace headwise {
namespace {

// As many as a training batch may have (model/train/run_config.cc).
constexpr std::int64_t kMostTokens = std::int64_t{1} << 28;
// Of a floor's copy, which is then larger than any cache.
constexpr std::int64_t kMostCopied = std::int64_t{1} << 30;

std::int64_t Largest(const BenchPlan& plan) { return plan.tokens.back(); }

// Of decoding at a context of up to `tokens`: the fewest that a row sees.
double DecodingBytes(const BenchPlan& plan, std::int64_t tokens) {
  const std::int64_t element = SizeOf(DecoderOptionsOf(plan.config.training()).compute);
  return DecodeBytes(plan.config.model(), plan.rows,
                     std::max<std::int64_t>(0, tokens - kDecodeSteps), element);
}

// Of the copy that work moving so many bytes is compared with.
std::int64_t CopiedBeside(double bytes) {
  return static_cast<std::int64_t>(std::min(bytes, static_cast<double>(kMostCopied)));
}

// Operations of a training step's forward and backward pass on sequences of several lengths.
double TrainingFlops(const RunConfig& config, std::int64_t tokens) {
  const std::int64_t length = std::min(tokens, config.training().sequence_length());
  const std::int64_t whole = tokens / length, rest = tokens % length;
  double flops =
      static_cast<double>(whole * length) * TrainingFlopsPerToken(config.model(), length);
  if (rest > 0) flops += static_cast<double>(rest) * TrainingFlopsPerToken(config.model(), rest);
  return flops;
}

// A plan's models train, or have no gradients.
DecoderMode ModeOf(const BenchPlan& plan) {
  return plan.train ? DecoderMode::kTraining : DecoderMode::kInference;
}

// Bytes of every parameter's momentum or two moments.
absl::StatusOr<double> OptimizerBytes(const RunConfig& config, Decoder& decoder) {
  HW_ASSIGN_OR_RETURN(const OptimizerSettings settings, ResolveSettings(config.optimizer()));
  const std::vector<const Parameter*> parameters(decoder.parameters().begin(),
                                                 decoder.parameters().end());
  HW_ASSIGN_OR_RETURN(const std::vector<GroupedParameter> groups,
                      AssignGroups(parameters, settings.granularity, settings.head_group_size));
  double bytes = 0;
  for (const GroupedParameter& group : groups) {
    const double state = group.assignment.group == OptimizerGroup::kAdamW ? 8 : 4;
    bytes += state * static_cast<double>(group.assignment.elements);
  }
  return bytes;
}

// Bytes of one model with everything that its units take.
absl::StatusOr<double> ModelMemory(const BenchPlan& plan, bool unfused) {
  const RunConfig& config = plan.config;
  ModelConfig model = config.model();
  model.mutable_attention()->set_unfused_qkv(unfused);
  DecoderOptions options = DecoderOptionsOf(config.training());
  options.device = Device::kMeta;
  options.mode = ModeOf(plan);
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> meta, Decoder::Create(model, options));
  ThreadPool pool(1);
  double bytes = static_cast<double>(meta->weight_copy_bytes());
  for (const Parameter* p : meta->parameters()) {
    bytes += static_cast<double>(p->value.bytes() + p->gradient.bytes());
  }
  if (plan.train) {
    HW_ASSIGN_OR_RETURN(const double state, OptimizerBytes(config, *meta));
    bytes += state;
  }
  double caches = 0;
  const auto extend = [&](std::int64_t rows, std::int64_t prompt,
                          std::int64_t most) -> absl::Status {
    HW_ASSIGN_OR_RETURN(const std::unique_ptr<KvCache> cache, meta->NewCache(rows, most));
    caches = std::max(caches, static_cast<double>(cache->bytes()));
    meta->Extend(*cache,
                 std::vector<std::vector<std::int32_t>>(
                     static_cast<std::size_t>(rows),
                     std::vector<std::int32_t>(static_cast<std::size_t>(prompt), 0)),
                 pool);
    return absl::OkStatus();
  };
  if (plan.train) {
    meta->ForwardBackward(
        RandomTrainingBatch(Largest(plan), config.training().sequence_length(), model.vocab_size()),
        1.0, pool);
  }
  if (plan.prefill) HW_RETURN_IF_ERROR(extend(1, Largest(plan), Largest(plan)));
  if (plan.decode) {
    HW_RETURN_IF_ERROR(
        extend(plan.rows, std::max<std::int64_t>(1, Largest(plan) - kDecodeSteps), Largest(plan)));
  }
  return bytes + caches + static_cast<double>(meta->peak_activation_bytes());
}

// The runners of a unit: fused, and unfused where there is one.
using MakeUnit = absl::FunctionRef<absl::StatusOr<std::unique_ptr<UnitRunner>>(BenchModel&)>;

absl::Status MeasureUnit(const BenchPlan& plan, BenchDevice& device,
                         absl::Span<const std::unique_ptr<BenchModel>> models, MakeUnit make,
                         UnitResult result, absl::FunctionRef<void(const UnitResult&)> report) {
  std::vector<std::unique_ptr<UnitRunner>> runners;
  for (const std::unique_ptr<BenchModel>& model : models) {
    HW_ASSIGN_OR_RETURN(std::unique_ptr<UnitRunner> runner, make(*model));
    runners.push_back(std::move(runner));
  }
  if (result.flops > 0) {
    result.floor_flops = device.product_flops();
    runners.push_back(
        device.Time(device.Product(DecoderOptionsOf(plan.config.training()).compute)));
  } else {
    const std::int64_t copied = CopiedBeside(result.bytes);
    result.floor_bytes = static_cast<double>(copied);
    runners.push_back(device.Time(device.Copy(copied)));
  }
  std::vector<UnitRunner*> contenders;
  contenders.reserve(runners.size());
  for (const std::unique_ptr<UnitRunner>& runner : runners) contenders.push_back(runner.get());
  HW_ASSIGN_OR_RETURN(Samples samples, Measure(contenders, plan.clock));
  result.fused = std::move(samples.front());
  result.floor = std::move(samples.back());
  if (samples.size() > 2) result.unfused = std::move(samples[1]);
  report(result);
  return absl::OkStatus();
}

// What would take less than `needed`, of what the plan has: "fewer --layers, fewer --tokens, ...".
absl::StatusOr<std::string> LessMemory(const BenchPlan& plan, double needed) {
  const ModelConfig& model = plan.config.model();
  std::vector<std::string> ways;
  BenchPlan one_row = plan;
  one_row.rows = 1;
  HW_ASSIGN_OR_RETURN(const double of_one_row, MemoryNeeded(one_row));
  if (of_one_row < needed / 2) ways.push_back("fewer --rows");
  if (plan.train && plan.prefill && plan.decode) {
    BenchPlan inference = plan;
    inference.train = inference.kernels = false;
    HW_ASSIGN_OR_RETURN(const double without_training, MemoryNeeded(inference));
    if (without_training < needed / 2) ways.push_back("--units prefill,decode");
  }
  if (model.num_layers() > 1) ways.push_back("fewer --layers");
  if (Largest(plan) > 1) ways.push_back("fewer --tokens");
  if (plan.unfused) ways.push_back("--fused-only");
  ways.push_back("a smaller --preset");
  const bool experts = model.ffn().moe().num_experts() > 1;
  return absl::StrCat(absl::StrJoin(ways, ", "), ", or --set, e.g. of ",
                      experts ? "model.ffn.moe.num_experts or " : "", "model.vocab_size");
}

}  // namespace

absl::StatusOr<std::vector<std::int64_t>> ParseTokens(absl::string_view text) {
  std::vector<std::int64_t> tokens;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    std::int64_t value = 0;
    if (!absl::SimpleAtoi(word, &value) || value < 1 || value > kMostTokens) {
      return absl::InvalidArgumentError(absl::StrCat("--tokens: expected numbers from 1 to ",
                                                     kMostTokens, " separated by commas, found '",
                                                     word, "' in '", text, "'"));
    }
    if (std::find(tokens.begin(), tokens.end(), value) != tokens.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--tokens: expected every size once, found ",
                                                     value, " twice in '", text, "'"));
    }
    tokens.push_back(value);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

absl::Status ParseUnits(absl::string_view text, BenchPlan* plan) {
  plan->train = plan->prefill = plan->decode = plan->kernels = false;
  for (const absl::string_view piece : absl::StrSplit(text, ',')) {
    const std::string word(piece);
    bool* const unit = word == "train"     ? &plan->train
                       : word == "prefill" ? &plan->prefill
                       : word == "decode"  ? &plan->decode
                       : word == "kernels" ? &plan->kernels
                                           : nullptr;
    if (unit == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("--units: expected train, prefill, decode or kernels, found '", word, "'",
                       DidYouMean(word, {"train", "prefill", "decode", "kernels"})));
    }
    *unit = true;
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const BenchPlan& plan) {
  if (plan.tokens.empty()) {
    return absl::InvalidArgumentError("--tokens: expected at least one size, found none");
  }
  const std::int64_t most = plan.config.model().max_sequence_length();
  if ((plan.prefill || plan.decode) && Largest(plan) > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--tokens: found ", Largest(plan), ", expected at most model.max_sequence_length = ", most,
        " for prefill and decode; try --units train,kernels, or --set model.max_sequence_length=",
        Largest(plan)));
  }
  if (plan.rows < 1 || plan.rows > kMostTokens / Largest(plan)) {
    return absl::InvalidArgumentError(absl::StrCat("--rows: expected from 1 to ",
                                                   kMostTokens / Largest(plan), " rows of ",
                                                   Largest(plan), " tokens, found ", plan.rows));
  }
  if (plan.clock.rounds < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rounds: expected at least 1, found ", plan.clock.rounds));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> MemoryNeeded(const BenchPlan& plan) {
  double models = 0, kernels = 0;
  if (plan.train || plan.prefill || plan.decode) {
    HW_ASSIGN_OR_RETURN(models, ModelMemory(plan, false));
    if (plan.unfused) {
      HW_ASSIGN_OR_RETURN(const double unfused, ModelMemory(plan, true));
      models += unfused;
    }
    if (plan.decode) {
      models += static_cast<double>(CopiedBeside(DecodingBytes(plan, Largest(plan))));
    }
  }
  if (plan.kernels) {
    for (const KernelCase& c : StepKernels(plan.config, Largest(plan), plan.unfused)) {
      kernels = std::max(kernels, static_cast<double>(c.memory + std::min(c.bytes, kMostCopied)));
    }
  }
  return std::max(models, kernels);
}

absl::StatusOr<double> CheckMemory(const BenchPlan& plan, const BenchDevice& device) {
  HW_ASSIGN_OR_RETURN(const double needed, MemoryNeeded(plan));
  if (needed <= device.memory_bytes()) return needed;
  HW_ASSIGN_OR_RETURN(const std::string less, LessMemory(plan, needed));
  return absl::ResourceExhaustedError(
      absl::StrCat("memory: ", plan.config.model().name(), " of ", plan.config.model().num_layers(),
                   " layers with ", Largest(plan), " tokens needs ", FormatBytes(needed), " on ",
                   device.name(), plan.unfused ? ", fused and unfused side by side" : "",
                   "; expected at most its ", FormatBytes(device.memory_bytes()), "; try ", less));
}

absl::Status MeasureUnits(const BenchPlan& plan, BenchDevice& device,
                          absl::FunctionRef<void(const UnitResult&)> report) {
  if (!plan.train && !plan.prefill && !plan.decode) return absl::OkStatus();
  const ModelConfig& model = plan.config.model();
  std::vector<std::unique_ptr<BenchModel>> models;
  for (const bool unfused : {false, true}) {
    if (unfused && !plan.unfused) continue;
    HW_ASSIGN_OR_RETURN(std::unique_ptr<BenchModel> made,
                        device.MakeModel(plan.config, ModeOf(plan), unfused));
    models.push_back(std::move(made));
  }
  for (const std::int64_t tokens : plan.tokens) {
    if (!plan.train) break;
    HW_RETURN_IF_ERROR(MeasureUnit(
        plan, device, models, [&](BenchModel& m) { return m.Train(tokens); },
        {.unit = "train",
         .tokens = tokens,
         .done = tokens,
         .flops = TrainingFlops(plan.config, tokens)},
        report));
  }
  for (const std::int64_t tokens : plan.tokens) {
    if (!plan.prefill) break;
    HW_RETURN_IF_ERROR(MeasureUnit(
        plan, device, models, [&](BenchModel& m) { return m.Prefill(tokens); },
        {.unit = "prefill", .tokens = tokens, .done = tokens, .flops = PrefillFlops(model, tokens)},
        report));
  }
  for (const std::int64_t tokens : plan.tokens) {
    if (!plan.decode) break;
    HW_RETURN_IF_ERROR(MeasureUnit(
        plan, device, models, [&](BenchModel& m) { return m.Decode(plan.rows, tokens); },
        {.unit = "decode",
         .tokens = tokens,
         .rows = plan.rows,
         .done = plan.rows,
         .bytes = DecodingBytes(plan, tokens)},
        report));
  }
  return absl::OkStatus();
}

absl::Status MeasureKernels(const BenchPlan& plan, BenchDevice& device,
                            absl::FunctionRef<void(const KernelResult&)> report) {
  if (!plan.kernels) return absl::OkStatus();
  const DType compute = DecoderOptionsOf(plan.config.training()).compute;
  const std::unique_ptr<UnitRunner> product = device.Time(device.Product(compute));
  for (const KernelCase& c : StepKernels(plan.config, Largest(plan), plan.unfused)) {
    HW_ASSIGN_OR_RETURN(KernelWork work, c.make(device));
    const std::unique_ptr<UnitRunner> kernel = device.Time(std::move(work));
    const std::int64_t copied = std::min(c.bytes, kMostCopied);
    const std::unique_ptr<UnitRunner> copy = device.Time(device.Copy(copied));
    std::vector<UnitRunner*> contenders = {kernel.get(), copy.get()};
    if (c.flops > 0) contenders.push_back(product.get());
    HW_ASSIGN_OR_RETURN(Samples samples, Measure(contenders, plan.clock));
    KernelResult result = {.name = c.name,
                           .tokens = Largest(plan),
                           .calls = c.calls,
                           .bytes = c.bytes,
                           .copied = static_cast<double>(copied),
                           .flops = c.flops,
                           .floor_flops = device.product_flops(),
                           .seconds = std::move(samples[0]),
                           .copy = std::move(samples[1])};
    if (c.flops > 0) result.product = std::move(samples[2]);
    report(result);
  }
  return absl::OkStatus();
}

}  // namespace headwise
