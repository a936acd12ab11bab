#include "optim/settings.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "optim/muon.h"
#include "optim/schedule.h"

namespace headwise {
namespace {

absl::Status UnknownValue(const char* field, const char* choices, int found) {
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.", field, " must be one of ", choices, ", found ", found));
}

absl::StatusOr<Granularity> ToGranularity(MuonGranularity granularity) {
  switch (granularity) {
    case HEAD:
      return Granularity::kHead;
    case KV_GROUP:
      return Granularity::kKvGroup;
    case PROJECTION:
      return Granularity::kProjection;
    case HEAD_GROUP:
      return Granularity::kHeadGroup;
    case WHOLE_MATRIX:
      return Granularity::kWholeMatrix;
    default:
      return UnknownValue("muon.granularity",
                          "HEAD, KV_GROUP, PROJECTION, HEAD_GROUP, WHOLE_MATRIX", granularity);
  }
}

absl::StatusOr<UpdateScale> ToUpdateScale(MuonScale scale) {
  switch (scale) {
    case ASPECT:
      return UpdateScale::kAspect;
    case MATCH_RMS_ADAMW:
      return UpdateScale::kMatchRmsAdamW;
    case SPECTRAL:
      return UpdateScale::kSpectral;
    case UNIT:
      return UpdateScale::kUnit;
    default:
      return UnknownValue("muon.scale", "ASPECT, MATCH_RMS_ADAMW, SPECTRAL, UNIT", scale);
  }
}

absl::StatusOr<MuonMode> ToMuonMode(MuonComputeMode mode) {
  switch (mode) {
    case CONTRACT_FP32:
      return MuonMode::kContract;
    case TENSOR_CORE:
      return MuonMode::kTensorCore;
    default:
      return UnknownValue("muon.compute_mode", "CONTRACT_FP32, TENSOR_CORE", mode);
  }
}

// CUSTOM's list; null for a named set.
absl::StatusOr<std::shared_ptr<const NewtonSchulzCoefficients>> CustomCoefficients(
    const MuonConfig& muon) {
  const int values = muon.custom_coefficients_size();
  if (muon.coefficients() != CUSTOM) {
    if (values == 0 && muon.custom_restarts_after_size() == 0) return nullptr;
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.muon.", values > 0 ? "custom_coefficients" : "custom_restarts_after",
        " must be empty unless optimizer.muon.coefficients is CUSTOM, found ",
        values > 0 ? values : muon.custom_restarts_after_size(), " values"));
  }
  if (values == 0 || values % 3 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.muon.custom_coefficients must hold a, b, c of every step, a positive multiple "
        "of 3 values, found ",
        values));
  }
  auto custom = std::make_shared<NewtonSchulzCoefficients>();
  custom->name = "custom";
  for (int i = 0; i < values; i += 3) {
    custom->steps.push_back({.a = static_cast<float>(muon.custom_coefficients(i)),
                             .b = static_cast<float>(muon.custom_coefficients(i + 1)),
                             .c = static_cast<float>(muon.custom_coefficients(i + 2))});
  }
  for (const std::int64_t step : muon.custom_restarts_after()) {
    // A step number that is no int is no step number either: CheckCoefficients refuses 0.
    custom->restarts_after.push_back(
        step > values ? values : static_cast<int>(std::max<std::int64_t>(step, 0)));
  }
  return custom;
}

// One real-valued field; `ok` is false for a NaN, as every comparison with it is.
absl::Status Require(bool ok, const char* field, const char* range, double found) {
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.", field, " must be ", range, ", found ", found));
}

absl::Status ValidateAdamW(const AdamWConfig& adamw) {
  const auto finite = [](double x) { return std::isfinite(static_cast<float>(x)); };
  HW_RETURN_IF_ERROR(Require(adamw.learning_rate() >= 0 && finite(adamw.learning_rate()),
                             "adamw.learning_rate", "finite and 0 or more", adamw.learning_rate()));
  HW_RETURN_IF_ERROR(
      Require(adamw.beta1() >= 0 && adamw.beta1() < 1, "adamw.beta1", "in [0, 1)", adamw.beta1()));
  HW_RETURN_IF_ERROR(
      Require(adamw.beta2() >= 0 && adamw.beta2() < 1, "adamw.beta2", "in [0, 1)", adamw.beta2()));
  // Positive in fp32 too: it keeps an element that never had a gradient from 0 / 0.
  HW_RETURN_IF_ERROR(Require(static_cast<float>(adamw.epsilon()) > 0 && finite(adamw.epsilon()),
                             "adamw.epsilon", "finite and more than 0", adamw.epsilon()));
  HW_RETURN_IF_ERROR(Require(adamw.weight_decay() >= 0 && finite(adamw.weight_decay()),
                             "adamw.weight_decay", "finite and 0 or more", adamw.weight_decay()));
  return Require(adamw.learning_rate() * adamw.weight_decay() <= 1, "adamw.weight_decay",
                 "at most 1 / learning_rate", adamw.weight_decay());
}

}  // namespace

absl::StatusOr<OptimizerSettings> ResolveSettings(const OptimizerConfig& config) {
  OptimizerSettings settings;
  const MuonConfig& muon = config.muon();
  settings.muon.learning_rate = muon.learning_rate();
  settings.muon.momentum = muon.momentum();
  settings.muon.nesterov = !muon.disable_nesterov();
  settings.muon.weight_decay = muon.weight_decay();
  HW_ASSIGN_OR_RETURN(settings.muon.scale, ToUpdateScale(muon.scale()));
  HW_ASSIGN_OR_RETURN(settings.granularity, ToGranularity(muon.granularity()));
  HW_ASSIGN_OR_RETURN(settings.custom_coefficients, CustomCoefficients(muon));
  switch (muon.coefficients()) {
    case QUINTIC5:
      settings.muon.coefficients = &Quintic5();
      break;
    case POLAR_EXPRESS8:
      settings.muon.coefficients = &PolarExpress8();
      break;
    case CUSTOM:
      settings.muon.coefficients = settings.custom_coefficients.get();
      break;
    default:
      return UnknownValue("muon.coefficients", "QUINTIC5, POLAR_EXPRESS8, CUSTOM",
                          muon.coefficients());
  }
  settings.head_group_size = muon.head_group_size();
  HW_ASSIGN_OR_RETURN(settings.muon_mode, ToMuonMode(muon.compute_mode()));
  if (const absl::Status s = ValidateMuonHyperparameters(settings.muon); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer.muon.", s.message()));
  }
  if (muon.head_group_size() < 0 ||
      (muon.granularity() == HEAD_GROUP && muon.head_group_size() == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.muon.head_group_size must be 1 or more for HEAD_GROUP, found ",
                     muon.head_group_size()));
  }

  const AdamWConfig& adamw = config.adamw();
  HW_RETURN_IF_ERROR(ValidateAdamW(adamw));
  settings.adamw = {.learning_rate = adamw.learning_rate(),
                    .beta1 = adamw.beta1(),
                    .beta2 = adamw.beta2(),
                    .epsilon = adamw.epsilon(),
                    .weight_decay = adamw.weight_decay()};

  HW_RETURN_IF_ERROR(ValidateSchedule(config.schedule()));
  settings.schedule = config.schedule();
  HW_RETURN_IF_ERROR(Require(config.clip_norm() >= 0 && std::isfinite(config.clip_norm()),
                             "clip_norm", "finite and 0 or more (0: no clipping)",
                             config.clip_norm()));
  settings.clip_norm = config.clip_norm();
  if (!ClipScope_IsValid(config.clip_scope())) {
    return UnknownValue("clip_scope", "CLIP_ADAMW, CLIP_ALL, CLIP_NONE", config.clip_scope());
  }
  settings.clip_scope = config.clip_scope();
  HW_RETURN_IF_ERROR(Require(config.balancing_rate() >= 0 && std::isfinite(config.balancing_rate()),
                             "balancing_rate", "finite and 0 or more", config.balancing_rate()));
  settings.balancing_rate = config.balancing_rate();
  return settings;
}

absl::Status CheckComputeMode(const OptimizerConfig& config, bool tensor_cores,
                              std::int64_t ranks) {
  // Ranks step blocks that are cut on the CPU: bits would depend on the mesh.
  if (config.muon().compute_mode() != TENSOR_CORE || (tensor_cores && ranks == 1)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "optimizer.muon.compute_mode must be CONTRACT_FP32 on ",
      ranks > 1 ? "several ranks" : "the CPU", ", found TENSOR_CORE; try ",
      ranks > 1 ? "one rank (no --mesh) on " : "",
      "a GPU or its emulation (--device cuda or cuda-emulated), or CONTRACT_FP32 (--set "
      "optimizer.muon.compute_mode=CONTRACT_FP32), with which a run's checkpoints go on"));
}

}  // namespace headwise
