#include "model/cli/rank_flags.h"

#include <cstdint>

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
  HW_RETURN_IF_ERROR(TypePass(config.model(),
                              {.compute = DecoderOptionsOf(t).compute,
                               .length = t.batch_size() / t.micro_batches() * t.sequence_length()},
                              checker)
                         .status());
  if (!checker.status().ok()) {
    return absl::FailedPreconditionError(absl::StrCat("--mesh ", flags.mesh, ": ",
                                                      checker.status().message(),
                                                      "; bazel run //tools:typecheck says more"));
  }
  const auto bytes = static_cast<double>(checker.bytes_sent());
  return CheckedLayout{
      .layout = std::move(layout),
      .description = absl::StrCat(mesh->ToString(), flags.sequence_parallel ? ", sp" : "",
                                  ": forward, backward and gradients are right; a rank sends ",
                                  FormatBytes(bytes), " for a micro-batch and its gradients")};
}

}  // namespace headwise
