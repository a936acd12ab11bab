#include "model/ops/vocabulary_loss.h"

#include "core/base/status_macros.h"
#include "kernels/cross_entropy/sharded_cross_entropy.h"
#include "model/ops/kernels_vocabulary.h"
#include "model/ops/op_support.h"

namespace headwise::ops {
namespace {

// values[t] = the largest of the ranks' values[t].
template <typename C>
absl::Status AllMaximum(Communicator& comm, std::vector<C>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<C> all(values.size() * static_cast<std::size_t>(comm.size()));
  HW_RETURN_IF_ERROR(comm.AllGather(absl::Span<const C>(values), absl::MakeSpan(all)));
  LargestOfShards<C>(RowSpan<const C>(all.data(), comm.size(), count), absl::MakeSpan(values));
  return absl::OkStatus();
}

}  // namespace

VocabularyLoss::VocabularyLoss(const OpContext& ctx, const LayoutType& logits) : ctx_(ctx) {
  if (!logits.defined() || ctx.sharding->ranks() == nullptr) return;
  for (const int axis : logits.AxesOf(1)) {
    axes_.push_back(&ctx.sharding->ranks()->Axis(logits.view(), axis));
  }
  begin_ = ShareBegin(logits, 1, ctx.sharding->rank());
  vocabulary_ = logits.GlobalShape()[1];
}

template <typename T>
absl::Status VocabularyLoss::RunShared(const LogitTransform& op, const Tensor& z,
                                       absl::Span<const std::int32_t> targets,
                                       const double* loss_scale, const Tensor& losses,
                                       const Tensor& dz) {
  using C = Compute<T>;
  const VocabularyShard columns = {.begin = begin_, .vocabulary = vocabulary_};
  std::vector<C> maxima(targets.size()), sums(targets.size()), target_logits(targets.size());
  ShardMaxima<T>(op, z.Rows<C>(), absl::MakeSpan(maxima), *ctx_.pool);
  for (Communicator* comm : axes_) HW_RETURN_IF_ERROR(AllMaximum<C>(*comm, maxima));
  ShardSums<T>(op, z.Rows<C>(), targets, columns, maxima, absl::MakeSpan(sums),
               absl::MakeSpan(target_logits), *ctx_.pool);
  // The innermost axis first: neighbours are added before others.
  for (auto comm = axes_.rbegin(); comm != axes_.rend(); ++comm) {
    HW_RETURN_IF_ERROR((*comm)->AllReduce(absl::Span<const C>(sums), absl::MakeSpan(sums)));
    HW_RETURN_IF_ERROR(
        (*comm)->AllReduce(absl::Span<const C>(target_logits), absl::MakeSpan(target_logits)));
  }
  ShardedLosses<C>(targets, sums, target_logits, Elements<C>(losses));
  if (dz.defined()) {
    ShardGradient<T>(op, z.Rows<C>(), targets, columns, maxima, sums, *loss_scale, dz.Rows<T>(),
                     *ctx_.pool);
  }
  return absl::OkStatus();
}

void VocabularyLoss::Run(const LogitTransform& op, const Tensor& z,
                         absl::Span<const std::int32_t> targets, const double* loss_scale,
                         const Tensor& losses, const Tensor& dz) {
  Dispatch(ctx_, [&]<typename T>(StorageType<T>) {
    if (axes_.empty()) {
      kernels::CrossEntropy<T>(ctx_, op, z.Rows<Compute<T>>(), targets, loss_scale,
                               Elements<Compute<T>>(losses), RowsOrNone<T>(dz));
    } else if (ctx_.sharding->status().ok()) {
      const absl::Status status = RunShared<T>(op, z, targets, loss_scale, losses, dz);
      if (!status.ok()) ctx_.sharding->Fail(status);
    }
  });
}

}  // namespace headwise::ops
