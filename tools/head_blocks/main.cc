// head_blocks: which head blocks Muon will orthogonalise in each weight of a checkpoint, and why the
// others are whole.
//
//   bazel run //tools:head_blocks -- --config config.json --weights model.safetensors
//   bazel run //tools:head_blocks -- --weights DIR --explain model.layers.0.self_attn.q_proj.weight
//
// Reads only headers, so that it is instant at any size.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/nearest_name.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "model/cli/exit_code.h"
#include "model/cli/paths.h"
#include "tools/head_blocks/checkpoint_source.h"
#include "tools/head_blocks/report.h"

namespace headwise {
namespace {

struct Flags {
  std::string config;
  std::string weights;
  std::string granularity;
  std::string explain;
  bool json = false;
  bool every_layer = false;
  bool split_mla_heads = false;
  bool output_columns = false;
};

absl::Status Run(const Flags& flags) {
  if (flags.weights.empty()) {
    return absl::InvalidArgumentError("--weights: expected a file or directory, found none");
  }
  HW_RETURN_IF_ERROR(EnterUserDirectory());
  BlockSize size;
  if (!flags.granularity.empty()) {
    HW_ASSIGN_OR_RETURN(size, ParseBlockSize(flags.granularity));
  }
  HW_ASSIGN_OR_RETURN(const CheckpointSource source,
                      FindCheckpointSource(flags.config, flags.weights));
  HW_ASSIGN_OR_RETURN(const TensorHeaders headers, ReadTensorHeaders(source.weights_path));
  const ResolveOptions options = {
      .mla_heads = flags.split_mla_heads ? MlaHeads::kSplit : MlaHeads::kWhole,
      .output_columns = flags.output_columns};
  HW_ASSIGN_OR_RETURN(const CheckpointLayout layout, ResolveCheckpoint(source, headers, options));
  std::string text;
  if (flags.json) {
    HW_ASSIGN_OR_RETURN(text, LayoutJson(layout, size, flags.explain));
  } else if (!flags.explain.empty()) {
    HW_ASSIGN_OR_RETURN(text, RowMap(layout, size, flags.explain));
  } else {
    HW_ASSIGN_OR_RETURN(text, LayoutTable(layout, size, flags.every_layer));
    const std::size_t tensors = headers.weights.size();
    text = absl::StrCat("config        ", source.config_path, ": model_type ",
                        layout.model_type.empty() ? "none" : Printable(layout.model_type),
                        "\nweights       ", source.weights_path, ": ", tensors,
                        tensors == 1 ? " tensor in " : " tensors in ", headers.files,
                        headers.files == 1 ? " file\n\n" : " files\n\n", text);
  }
  std::fputs(text.c_str(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return absl::DataLossError("standard output: cannot write all of it");
  }
  // Shown first, so that the reasons are there to read.
  return flags.granularity.empty() ? absl::OkStatus() : RequireHeadBlocks(layout, size.granularity);
}

// The parser's message, with the nearest name for a flag that it did not know.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    names.push_back("--" + option->get_single_name());
  }
  std::string hint;
  for (int i = 1; i < argc && hint.empty(); ++i) {
    std::string word = argv[i];
    word = word.substr(0, word.find('='));
    const bool known = std::find(names.begin(), names.end(), word) != names.end();
    if (!known && std::string(error.what()).find(word) != std::string::npos) {
      hint = DidYouMean(word, names);
    }
  }
  return absl::StrCat(error.what(), hint, "; see --help");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Shows which head blocks Muon orthogonalises in a checkpoint's weights.",
               "head_blocks");
  app.add_option("--weights", flags.weights,
                 "A .safetensors file, an index of several, a directory with one of them, or a "
                 "Headwise run or checkpoint");
  app.add_option("--config", flags.config, "config.json [beside the weights]");
  app.add_option("--granularity", flags.granularity,
                 "whole_matrix, projection, kv_group, head or head_group:N [head]; an error if "
                 "nothing has head blocks");
  app.add_option("--explain", flags.explain, "Draws one weight: which rows are which head");
  app.add_flag("--json", flags.json, "For machines; with --explain also that weight's ranges");
  app.add_flag("--all", flags.every_layer, "A row for every layer's weight");
  app.add_flag("--split-mla-heads", flags.split_mla_heads,
               "Latent attention: the parts of a head as blocks of their own");
  app.add_flag("--output-columns", flags.output_columns,
               "Also the attention output, whose heads lie on its columns");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return ReportError(absl::InvalidArgumentError(UsageError(app, error, argc, argv)));
  }
  const absl::Status status = Run(flags);
  return status.ok() ? kExitOk : ReportError(status);
}

}  // namespace
}  // namespace headwise

// The code throws nothing itself; the libraries may, when memory runs out.
int main(int argc, char** argv) {
  try {
    return headwise::Main(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "error: %s\n", exception.what());
  } catch (...) {
    std::fprintf(stderr, "error: an exception without a message\n");
  }
  return headwise::kExitInternal;
}
