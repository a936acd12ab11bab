#include "kernels/prepare_qkv/gpu_problem.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

absl::Span<const float> TableValues(const RotaryTable& table, const float* first) {
  return {first, static_cast<std::size_t>(table.length() * (table.rotary_dim() / 2))};
}

}  // namespace

template <typename T>
absl::StatusOr<GpuProblem<T>> GpuProblem<T>::Create(const Problem<T>& problem) {
  GpuProblem gpu;
  gpu.original_ = &problem;
  gpu.host_ = problem.MakeResults();
  const QkvInputs<T> in = problem.inputs();
  const QkvGradients<T> d = problem.gradients();
  gpu.host_positions_.assign(in.positions.begin(), in.positions.end());
  HW_ASSIGN_OR_RETURN(gpu.packed_, DeviceMirror::Of(in.packed));
  HW_ASSIGN_OR_RETURN(gpu.dq_, DeviceMirror::Of(d.dq));
  HW_ASSIGN_OR_RETURN(gpu.dk_, DeviceMirror::Of(d.dk));
  HW_ASSIGN_OR_RETURN(gpu.dv_, DeviceMirror::Of(d.dv));
  HW_ASSIGN_OR_RETURN(gpu.q_weight_, DeviceMirror::Of(in.q_weight));
  HW_ASSIGN_OR_RETURN(gpu.k_weight_, DeviceMirror::Of(in.k_weight));
  HW_ASSIGN_OR_RETURN(gpu.positions_, DeviceArray<std::int64_t>::Allocate(
                                          static_cast<std::int64_t>(in.positions.size())));
  if (const RotaryTable* const table = problem.op().rotary; table != nullptr) {
    HW_ASSIGN_OR_RETURN(gpu.cos_, DeviceMirror::Of(TableValues(*table, table->Cos(0))));
    HW_ASSIGN_OR_RETURN(gpu.sin_, DeviceMirror::Of(TableValues(*table, table->Sin(0))));
  }
  HW_ASSIGN_OR_RETURN(gpu.q_out_, DeviceMirror::Of(gpu.host_.q.storage()));
  HW_ASSIGN_OR_RETURN(gpu.k_out_, DeviceMirror::Of(gpu.host_.k.storage()));
  HW_ASSIGN_OR_RETURN(gpu.v_out_, DeviceMirror::Of(gpu.host_.v.storage()));
  HW_ASSIGN_OR_RETURN(gpu.dpacked_out_, DeviceMirror::Of(gpu.host_.dpacked.storage()));
  HW_ASSIGN_OR_RETURN(gpu.dq_weight_out_, DeviceMirror::Of(gpu.host_.dq_weight.storage()));
  HW_ASSIGN_OR_RETURN(gpu.dk_weight_out_, DeviceMirror::Of(gpu.host_.dk_weight.storage()));
  HW_ASSIGN_OR_RETURN(gpu.scratch_, DeviceArray<float>::Allocate(
                                        WeightGradientScratch(problem.op(), in.packed.rows)));
  HW_ASSIGN_OR_RETURN(gpu.first_bad_token_, DeviceArray<std::uint64_t>::Allocate(1));
  HW_RETURN_IF_ERROR(gpu.Reset(problem));
  return gpu;
}

template <typename T>
QkvInputs<T> GpuProblem<T>::inputs() const {
  const QkvInputs<T> in = original_->inputs();
  return {packed_.Translate(in.packed), q_weight_.Translate(in.q_weight),
          k_weight_.Translate(in.k_weight)};
}

template <typename T>
QkvGradients<T> GpuProblem<T>::gradients() const {
  const QkvGradients<T> d = original_->gradients();
  return {dq_.Translate(d.dq), dk_.Translate(d.dk), dv_.Translate(d.dv)};
}

template <typename T>
QkvOutputs<T> GpuProblem<T>::outputs() const {
  const QkvOutputs<T> out = Problem<T>::Outputs(host_);
  return {q_out_.Translate(out.q), k_out_.Translate(out.k), v_out_.Translate(out.v)};
}

template <typename T>
PackedGradients<T> GpuProblem<T>::packed_gradients() const {
  const PackedGradients<T> out = original_->Gradients(host_);
  return {dpacked_out_.Translate(out.dpacked), dq_weight_out_.Translate(out.dq_weight_per_group),
          dk_weight_out_.Translate(out.dk_weight_per_group)};
}

template <typename T>
QkvLaunch GpuProblem<T>::launch(CUstream_st* stream) const {
  QkvLaunch launch = {.stream = stream,
                      .positions = positions_.data(),
                      .first_bad_token = first_bad_token_.data(),
                      .weight_gradient_scratch = scratch_.data()};
  if (const RotaryTable* const table = op().rotary; table != nullptr) {
    launch.cos = cos_.Translate(table->Cos(0));
    launch.sin = sin_.Translate(table->Sin(0));
  }
  return launch;
}

template <typename T>
absl::Status GpuProblem<T>::Reset(const Problem<T>& problem) {
  contents_ = &problem;
  const QkvInputs<T> in = problem.inputs();
  const QkvGradients<T> d = problem.gradients();
  HW_RETURN_IF_ERROR(packed_.Upload(in.packed.data));
  HW_RETURN_IF_ERROR(dq_.Upload(d.dq.data));
  HW_RETURN_IF_ERROR(dk_.Upload(d.dk.data));
  HW_RETURN_IF_ERROR(dv_.Upload(d.dv.data));
  HW_RETURN_IF_ERROR(q_weight_.Upload(in.q_weight.data()));
  HW_RETURN_IF_ERROR(k_weight_.Upload(in.k_weight.data()));
  HW_RETURN_IF_ERROR(SetPositions(in.positions));
  HW_RETURN_IF_ERROR(q_out_.Upload(host_.q.storage().data()));
  HW_RETURN_IF_ERROR(k_out_.Upload(host_.k.storage().data()));
  HW_RETURN_IF_ERROR(v_out_.Upload(host_.v.storage().data()));
  HW_RETURN_IF_ERROR(dpacked_out_.Upload(host_.dpacked.storage().data()));
  HW_RETURN_IF_ERROR(dq_weight_out_.Upload(host_.dq_weight.storage().data()));
  HW_RETURN_IF_ERROR(dk_weight_out_.Upload(host_.dk_weight.storage().data()));
  // NaN, so that reading what was not written shows.
  HW_RETURN_IF_ERROR(
      FillDevice(scratch_.data(), 0xff, scratch_.size() * std::int64_t{sizeof(float)}));
  return FillDevice(first_bad_token_.data(), 0xff, sizeof(std::uint64_t));
}

template <typename T>
absl::Status GpuProblem<T>::SetPositions(absl::Span<const std::int64_t> positions) {
  HW_CHECK_EQ(positions.size(), host_positions_.size());
  std::copy(positions.begin(), positions.end(), host_positions_.begin());
  return CopyToDevice(positions_.data(), host_positions_.data(),
                      positions_.size() * std::int64_t{sizeof(std::int64_t)});
}

template <typename T>
absl::Status GpuProblem<T>::PoisonPositions() {
  return FillDevice(positions_.data(), 0xff,
                    positions_.size() * std::int64_t{sizeof(std::int64_t)});
}

template <typename T>
absl::StatusOr<Results<T>> GpuProblem<T>::Download() const {
  const QkvInputs<T> in = contents_->inputs();
  const QkvGradients<T> d = contents_->gradients();
  HW_RETURN_IF_ERROR(packed_.CheckEqual(in.packed.data, "packed"));
  HW_RETURN_IF_ERROR(dq_.CheckEqual(d.dq.data, "dq"));
  HW_RETURN_IF_ERROR(dk_.CheckEqual(d.dk.data, "dk"));
  HW_RETURN_IF_ERROR(dv_.CheckEqual(d.dv.data, "dv"));
  HW_RETURN_IF_ERROR(q_weight_.CheckEqual(in.q_weight.data(), "q_weight"));
  HW_RETURN_IF_ERROR(k_weight_.CheckEqual(in.k_weight.data(), "k_weight"));
  std::vector<std::int64_t> positions(host_positions_.size());
  HW_RETURN_IF_ERROR(CopyToHost(positions.data(), positions_.data(),
                                positions_.size() * std::int64_t{sizeof(std::int64_t)}));
  if (positions != host_positions_) return absl::InternalError("positions: not what was given");
  if (const RotaryTable* const table = op().rotary; table != nullptr) {
    HW_RETURN_IF_ERROR(cos_.CheckEqual(table->Cos(0), "cos"));
    HW_RETURN_IF_ERROR(sin_.CheckEqual(table->Sin(0), "sin"));
  }
  Results<T> results = host_;
  HW_RETURN_IF_ERROR(q_out_.Download(results.q.storage().data()));
  HW_RETURN_IF_ERROR(k_out_.Download(results.k.storage().data()));
  HW_RETURN_IF_ERROR(v_out_.Download(results.v.storage().data()));
  HW_RETURN_IF_ERROR(dpacked_out_.Download(results.dpacked.storage().data()));
  HW_RETURN_IF_ERROR(dq_weight_out_.Download(results.dq_weight.storage().data()));
  HW_RETURN_IF_ERROR(dk_weight_out_.Download(results.dk_weight.storage().data()));
  return results;
}

template <typename T>
absl::StatusOr<std::int64_t> GpuProblem<T>::FirstBadToken() const {
  std::uint64_t token = 0;
  HW_RETURN_IF_ERROR(CopyToHost(&token, first_bad_token_.data(), sizeof(token)));
  return static_cast<std::int64_t>(token);
}

template <typename T>
absl::StatusOr<Results<T>> RunOnGpu(const Problem<T>& problem, bool device_positions) {
  HW_ASSIGN_OR_RETURN(GpuProblem<T> gpu, GpuProblem<T>::Create(problem));
  QkvInputs<T> in = gpu.inputs();
  if (!device_positions) {
    HW_RETURN_IF_ERROR(gpu.PoisonPositions());  // the launch has to copy them
    in.positions = problem.inputs().positions;
  }
  HW_RETURN_IF_ERROR(cuda::PrepareQkv<T>(gpu.op(), in, gpu.outputs(), gpu.launch(nullptr)));
  HW_RETURN_IF_ERROR(cuda::PrepareQkvBackward<T>(gpu.op(), in, gpu.gradients(),
                                                 gpu.packed_gradients(), gpu.launch(nullptr)));
  HW_ASSIGN_OR_RETURN(const std::int64_t bad_token, gpu.FirstBadToken());
  if (bad_token != -1) {
    return absl::InternalError(absl::StrCat("token ", bad_token, " was said to be bad"));
  }
  return gpu.Download();
}

#define HW_INSTANTIATE(T)       \
  template class GpuProblem<T>; \
  template absl::StatusOr<Results<T>> RunOnGpu(const Problem<T>&, bool)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
#undef HW_INSTANTIATE

}  // namespace headwise
