#include "kernels/prepare_qkv/emulated_problem.h"

#include <cstring>

#include "absl/status/status.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

using emulation::Access;

template <typename T>
void AddSpan(const char* name, absl::Span<T> span, emulation::Session& session) {
  if (span.empty()) return;
  session.AddRegion(name, span.data(), static_cast<std::int64_t>(span.size() * sizeof(T)),
                    Access::kRead);
}

template <typename T>
void AddMatrix(const char* name, RowSpan<T> rows, emulation::Session& session) {
  if (rows.rows > 0) session.AddRows(name, rows);
}

template <typename T>
void AddInputs(const QkvInputs<T>& in, emulation::Session& session) {
  AddMatrix("packed", in.packed, session);
  AddSpan("q_weight", in.q_weight, session);
  AddSpan("k_weight", in.k_weight, session);
}

}  // namespace

LaunchMemory::LaunchMemory(const QkvPreparation& op, absl::Span<const std::int64_t> positions,
                           std::int64_t tokens, bool device_positions)
    : op_(op),
      device_positions_(device_positions),
      positions_(positions.begin(), positions.end()),
      scratch_(WeightGradientScratch(op, tokens)) {
  if (!scratch_.empty()) {
    std::memset(static_cast<void*>(scratch_.data()), 0xff, scratch_.size() * sizeof(float));
  }
  if (!device_positions) positions_.assign(positions.size(), -1);
}

QkvLaunch LaunchMemory::launch() {
  QkvLaunch launch = {.positions = positions_.empty() ? nullptr : positions_.data(),
                      .weight_gradient_scratch = scratch_.empty() ? nullptr : scratch_.data()};
  if (device_positions_) launch.first_bad_token = &first_bad_token_;
  if (op_.rotary != nullptr && op_.rotary->length() > 0) {
    launch.cos = op_.rotary->Cos(0);
    launch.sin = op_.rotary->Sin(0);
  }
  return launch;
}

void LaunchMemory::AddRegions(emulation::Session& session) {
  const auto add = [&](const char* name, const void* data, std::int64_t bytes, Access access) {
    if (bytes > 0) session.AddRegion(name, data, bytes, access);
  };
  add("scratch", scratch_.data(), static_cast<std::int64_t>(scratch_.size() * sizeof(float)),
      Access::kReadWrite);
  add("positions", positions_.data(),
      static_cast<std::int64_t>(positions_.size() * sizeof(std::int64_t)),
      device_positions_ ? Access::kRead : Access::kReadWrite);  // the copy writes them
  if (device_positions_) {
    add("first_bad_token", &first_bad_token_, sizeof(first_bad_token_), Access::kReadWrite);
  }
  if (op_.rotary == nullptr) return;
  const std::int64_t bytes =
      op_.rotary->length() * (op_.rotary->rotary_dim() / 2) * std::int64_t{sizeof(float)};
  add("cos", op_.rotary->Cos(0), bytes, Access::kRead);
  add("sin", op_.rotary->Sin(0), bytes, Access::kRead);
}

template <typename T>
void AddForwardRegions(const Problem<T>& problem, const Results<T>& results,
                       emulation::Session& session) {
  AddInputs(problem.inputs(), session);
  const QkvOutputs<T> out = Problem<T>::Outputs(results);
  AddMatrix("q", out.q, session);
  AddMatrix("k", out.k, session);
  if (out.v.data != nullptr) AddMatrix("v", out.v, session);
}

template <typename T>
void AddBackwardRegions(const Problem<T>& problem, const Results<T>& results,
                        emulation::Session& session) {
  AddInputs(problem.inputs(), session);
  const QkvGradients<T> d = problem.gradients();
  AddMatrix("dq", d.dq, session);
  AddMatrix("dk", d.dk, session);
  AddMatrix("dv", d.dv, session);
  const PackedGradients<T> out = problem.Gradients(results);
  AddMatrix("dpacked", out.dpacked, session);
  AddMatrix("dq_weight_per_group", out.dq_weight_per_group, session);
  AddMatrix("dk_weight_per_group", out.dk_weight_per_group, session);
}

template <typename T>
absl::StatusOr<Results<T>> RunEmulated(const Problem<T>& problem, const emulation::Options& options,
                                       bool device_positions) {
  Results<T> results = problem.MakeResults();
  QkvInputs<T> in = problem.inputs();
  const absl::Span<const std::int64_t> positions = in.positions;
  if (device_positions) in.positions = {};
  {
    LaunchMemory memory(problem.op(), positions, in.packed.rows, device_positions);
    emulation::Session session(options);
    AddForwardRegions(problem, results, session);
    memory.AddRegions(session);
    HW_RETURN_IF_ERROR(cuda_emulated::PrepareQkv<T>(problem.op(), in, Problem<T>::Outputs(results),
                                                    memory.launch()));
    HW_RETURN_IF_ERROR(session.status());
  }
  LaunchMemory memory(problem.op(), positions, in.packed.rows, device_positions);
  emulation::Session session(options);
  AddBackwardRegions(problem, results, session);
  memory.AddRegions(session);
  HW_RETURN_IF_ERROR(cuda_emulated::PrepareQkvBackward<T>(
      problem.op(), in, problem.gradients(), problem.Gradients(results), memory.launch()));
  HW_RETURN_IF_ERROR(session.status());
  return results;
}

#define HW_INSTANTIATE(T)                                                                       \
  template void AddForwardRegions(const Problem<T>&, const Results<T>&, emulation::Session&);   \
  template void AddBackwardRegions(const Problem<T>&, const Results<T>&, emulation::Session&);  \
  template absl::StatusOr<Results<T>> RunEmulated(const Problem<T>&, const emulation::Options&, \
                                                  bool)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
#undef HW_INSTANTIATE

}  // namespace headwise
