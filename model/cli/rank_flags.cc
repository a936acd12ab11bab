#include "model/cli/rank_flags.h"

#include <unistd.h>

#include <bit>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/mesh.h"
#include "model/report/progress.h"
#include "model/train/run_config.h"
#include "model/train/training_rank.h"
#include "model/type_pass.h"

namespace headwise {
namespace {

absl::Status CheckKind(const std::string& ranks) {
  if (ranks.empty() || ranks == "threads") return absl::OkStatus();
  if (ranks == "mpi" || ranks == "nccl") {
    return absl::UnimplementedError(absl::StrCat(
        "--ranks ", ranks, ": this binary starts ranks as threads only; try --ranks threads"));
  }
  return absl::InvalidArgumentError(absl::StrCat("--ranks: expected threads, found '", ranks, "'",
                                                 DidYouMean(ranks, {"threads", "mpi", "nccl"})));
}

// Ranks that are threads share this machine's memory. Momentum alone is what every optimizer keeps
// at least.
absl::Status CheckRankMemory(const RankFlags& flags, const RunConfig& config, const Mesh& mesh,
                             const TypePassReport& pass) {
  double share = 0;
  for (const auto& parameter : pass.parameters) share += static_cast<double>(parameter.bytes);
  std::int64_t dp = 1;
  for (const MeshAxis& axis : mesh.Axes(MeshView::kDense)) {
    if (axis.name == "dp") dp = axis.size;
  }
  const int partials =
      std::bit_width(static_cast<std::uint64_t>(config.training().micro_batches() / dp)) - 1;
  const double rank = share * (3 + partials) + static_cast<double>(pass.weight_copy_bytes) +
                      static_cast<double>(pass.activation_bytes);
  const double needed = rank * static_cast<double>(mesh.size());
  const double there =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "--mesh ", flags.mesh, ": ", mesh.size(), " ranks as threads need at least ",
      FormatBytes(rank), " each, ", FormatBytes(needed), " together; expected at most the ",
      FormatBytes(there), " of this machine; try fewer ranks"));
}

}  // namespace

void AddRankOptions(CLI::App* command, RankFlags* flags) {
  command
      ->add_option("--mesh", flags->mesh,
                   "Ranks to train on, by axis: dp, cp, tp, ep, e.g. dp=2,tp=2 [one rank]")
      ->type_name("AXES");
  command->add_flag("--sp", flags->sequence_parallel,
                    "Sequence parallel: tp also shares out tokens between its products");
  command->add_option("--ranks", flags->ranks, "What ranks are: threads [threads]")
      ->type_name("KIND");
}

absl::StatusOr<std::optional<CheckedLayout>> CheckLayout(const RankFlags& flags,
                                                         const RunConfig& config) {
  HW_RETURN_IF_ERROR(CheckKind(flags.ranks));
  const auto mesh = Mesh::Parse(flags.mesh);
  if (!mesh.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--mesh: ", mesh.status().message()));
  }
  if (mesh->size() == 1) return std::nullopt;
  HW_RETURN_IF_ERROR(TrainingRank::Check(config, *mesh));
  HW_ASSIGN_OR_RETURN(
      ShardedLayout layout,
      StandardLayout(config.model(), *mesh, {.sequence_parallel = flags.sequence_parallel}));
  const TrainingConfig& t = config.training();
  LayoutChecker checker(layout.mesh, layout.plan);
  HW_ASSIGN_OR_RETURN(const TypePassReport pass,
                      TypePass(config.model(),
                               {.compute = DecoderOptionsOf(t).compute,
                                .length = t.batch_size() / t.micro_batches() * t.sequence_length()},
                               checker));
  if (!checker.status().ok()) {
    return absl::FailedPreconditionError(absl::StrCat("--mesh ", flags.mesh, ": ",
                                                      checker.status().message(),
                                                      "; bazel run //tools:typecheck says more"));
  }
  HW_RETURN_IF_ERROR(CheckRankMemory(flags, config, *mesh, pass));
  const auto bytes = static_cast<double>(checker.bytes_sent());
  return CheckedLayout{
      .layout = std::move(layout),
      .description = absl::StrCat(mesh->ToString(), flags.sequence_parallel ? ", sp" : "",
                                  ": forward, backward and gradients are right; a rank sends ",
                                  FormatBytes(bytes), " for a micro-batch and its gradients")};
}

}  // namespace headwise
