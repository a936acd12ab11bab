// muse convert: a Hugging Face folder as a checkpoint of ours, or the other way.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "model/cli/commands.h"
#include "model/hf/convert.h"
#include "model/hf/hf_folder.h"
#include "model/hf/model_source.h"
#include "model/hf/shard_plan.h"
#include "model/report/progress.h"

namespace headwise {
namespace {

struct ConvertFlags {
  std::string from, to;
  std::string format;  // of `to`; empty: the other one than `from` has
  std::string max_shard_size = "5GB";
};

absl::Status CheckFormat(const std::string& format, const char* wanted, const std::string& from) {
  if (format.empty() || format == wanted) return absl::OkStatus();
  if (format == "hf" || format == "native") {
    return absl::InvalidArgumentError(absl::StrCat("--format ", format, ": ", from, " is ", format,
                                                   " already; expected ", wanted));
  }
  return absl::InvalidArgumentError(absl::StrCat("--format: expected hf or native, found '", format,
                                                 "'", DidYouMean(format, {"hf", "native"})));
}

void Report(const ConvertFlags& flags, const char* form, const ConvertReport& report) {
  std::printf("%s: %s of model_type %s: %d tensors, %s in %d %s, %s/s\n", flags.to.c_str(), form,
              report.model_type.c_str(), static_cast<int>(report.tensors),
              FormatBytes(report.bytes).c_str(), static_cast<int>(report.files),
              report.files == 1 ? "file" : "files",
              FormatBytes(report.seconds > 0 ? report.bytes / report.seconds : 0).c_str());
  if (report.not_run > 0) {
    std::printf("carried through, not run: %d tensors (%s%s)\n", static_cast<int>(report.not_run),
                report.first_not_run.c_str(), report.not_run > 1 ? ", ..." : "");
  }
}

absl::Status RunConvert(const ConvertFlags& flags) {
  if (flags.from.empty() || flags.to.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.from.empty() ? "--from" : "--to", ": expected a directory, found none"));
  }
  ConvertOptions options{.progress = stderr};
  absl::StatusOr<std::int64_t> size = ParseShardSize(flags.max_shard_size);
  if (!size.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--max-shard-size: ", size.status().message()));
  }
  options.max_shard_bytes = *size;
  if (HfFolder::Is(flags.from)) {
    HW_RETURN_IF_ERROR(CheckFormat(flags.format, "native", flags.from));
    HW_ASSIGN_OR_RETURN(const HfFolder folder, HfFolder::Open(flags.from));
    HW_ASSIGN_OR_RETURN(const ConvertReport report,
                        HfToNative(folder, flags.to, RunConfigOf(folder.model()), options));
    Report(flags, "checkpoint", report);
    std::printf("to go on    muse generate --run %s, or muse train --init %s\n", flags.to.c_str(),
                flags.to.c_str());
    return absl::OkStatus();
  }
  HW_RETURN_IF_ERROR(CheckFormat(flags.format, "hf", flags.from));
  HW_ASSIGN_OR_RETURN(const ConvertReport report, NativeToHf(flags.from, flags.to, options));
  Report(flags, "Hugging Face folder", report);
  return absl::OkStatus();
}

}  // namespace

void AddConvertCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command = app.add_subcommand(
      "convert", "Hugging Face folder <-> checkpoint of ours, with the same bits in both");
  command->add_option("--from", flags->from, "Hugging Face folder, run directory or checkpoint")
      ->check(NotEmpty())
      ->type_name("DIR");
  command->add_option("--to", flags->to, "New directory")->check(NotEmpty())->type_name("DIR");
  command->add_option("--format", flags->format, "hf or native [the other one than --from has]")
      ->check(NotEmpty())
      ->type_name("F");
  command
      ->add_option("--max-shard-size", flags->max_shard_size,
                   "Largest file of weights, to hf: 500MB, 2GiB, ... [5GB]")
      ->type_name("SIZE");
  command->callback([flags, action] { *action = [flags] { return RunConvert(*flags); }; });
}

}  // namespace headwise
