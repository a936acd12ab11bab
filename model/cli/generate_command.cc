// muse generate: streams a continuation of a prompt from a trained model.
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "kernels/common/thread_pool.h"
#include "model/cli/commands.h"
#include "model/cli/device.h"
#include "model/cli/model_flags.h"
#include "model/cli/paths.h"
#include "model/cli/run_model.h"
#include "model/generate/generate.h"
#include "model/report/progress.h"
#include "model/train/run_config.h"

namespace headwise {
namespace {

struct GenerateFlags {
  std::string run;
  std::string hf;  // a Hugging Face folder; instead of a run
  std::string prompt;
  bool has_prompt = false;
  std::string prompt_ids;  // instead of a prompt
  std::string device = "cpu";
  int threads = 0;
  GenerateOptions options;
};

absl::Status RunGenerate(GenerateFlags flags) {
  HW_ASSIGN_OR_RETURN(const CommandDevice device, OpenDevice(flags.device));
  HW_RETURN_IF_ERROR(ValidateSamplerOptions(flags.options.sampler));
  if (flags.run.empty() && flags.hf.empty()) {
    HW_ASSIGN_OR_RETURN(flags.run, NewestRunDirectory());
  }
  HW_ASSIGN_OR_RETURN(const ModelSource source, OpenRunOrHf(flags.run, flags.hf));
  RunConfig config = source.config();
  if (!flags.prompt_ids.empty()) {
    if (flags.has_prompt) {
      return absl::InvalidArgumentError(
          "--prompt and --prompt-ids: expected one of them, found both");
    }
    // Any format whose tokens are not bytes.
    config.mutable_data()->set_format(UINT32);
    flags.prompt = flags.prompt_ids;
    flags.has_prompt = true;
  }
  HW_ASSIGN_OR_RETURN(
      flags.options.prompt,
      EncodePrompt(config, flags.has_prompt ? flags.prompt : DefaultPrompt(config)));
  HW_RETURN_IF_ERROR(CheckGenerateOptions(config.model(), flags.options));
  ThreadPool pool(flags.threads > 0 ? flags.threads : DefaultThreads());
  const auto prompt_tokens = static_cast<std::int64_t>(flags.options.prompt.size());
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                      MakeDecoder(source, config, device,
                                  {.cache_tokens = prompt_tokens + flags.options.max_tokens,
                                   .prompt_tokens = prompt_tokens},
                                  pool));

  for (const std::string& broken : source.rejected()) {
    std::fprintf(stderr, "warning: skipped %s\n", broken.c_str());
  }
  std::fprintf(stderr, "%s\n", source.Describe().c_str());
  if (device.on_gpu()) std::fprintf(stderr, "on %s\n", device.opened.gpu->Describe().c_str());
  if (source.folder() != nullptr) {
    std::fprintf(stderr, "prompt and output are %s\n",
                 config.data().format() == BYTES
                     ? "bytes, a token each; for a tokenizer's ids: --prompt-ids"
                     : "token ids");
  }
  std::fprintf(stderr, "\n");
  HW_ASSIGN_OR_RETURN(const GenerateReport report,
                      Generate(*decoder, config.data(), flags.options, stdout, pool));
  std::printf("\n");
  std::fflush(stdout);
  const auto rate = [](std::int64_t tokens, double seconds) {
    return seconds > 0 ? FormatCount(static_cast<double>(tokens) / seconds) : std::string("n/a");
  };
  std::fprintf(stderr, "\nprefill %d tokens, %s tokens/s; decode %d tokens, %s tokens/s\n",
               static_cast<int>(report.prompt_tokens),
               rate(report.prompt_tokens, report.prefill_seconds).c_str(),
               static_cast<int>(report.new_tokens),
               rate(report.new_tokens - 1, report.decode_seconds).c_str());
  if (device.on_gpu()) {
    std::fprintf(stderr, "decode: %s\n",
                 report.graph_kernels > 0
                     ? absl::StrCat("1 graph of ", report.graph_kernels, " kernels").c_str()
                     : "no graph");
  }
  return absl::OkStatus();
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<GenerateFlags>();
  GenerateOptions& options = flags->options;
  CLI::App* command =
      app.add_subcommand("generate", "Streams a continuation of a prompt from a trained model");
  command
      ->add_option("--run", flags->run,
                   "Run directory or one checkpoint of it [the newest under runs/]")
      ->check(NotEmpty())
      ->type_name("DIR");
  AddHfOption(command, &flags->hf);
  command
      ->add_option("--prompt-ids", flags->prompt_ids,
                   "Token ids to continue, in place of --prompt; then ids come out")
      ->check(NotEmpty())
      ->type_name("N,N,...");
  CLI::Option* prompt = command
                            ->add_option("--prompt", flags->prompt,
                                         "Text to continue (ids for models without a text format)")
                            ->type_name("TEXT");
  command->add_option("--max-tokens", options.max_tokens, "New tokens [200]")
      ->check(CLI::Range(0, 1000000000))
      ->type_name("N");
  command->add_option("--temperature", options.sampler.temperature, "0 is greedy [0.8]")
      ->type_name("X");
  command
      ->add_option("--top-k", options.sampler.top_k, "Keeps the k most likely tokens; 0: all [0]")
      ->type_name("K");
  command
      ->add_option("--top-p", options.sampler.top_p,
                   "Keeps the most likely tokens of total probability p [1]")
      ->type_name("P");
  command
      ->add_option("--min-p", options.sampler.min_p,
                   "Keeps tokens of at least p times the largest probability [0]")
      ->type_name("P");
  command->add_option("--seed", options.sampler.seed, "Same seed, same text [0]")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
      ->type_name("N");
  command->add_option("--stop", options.stop, "Ends the text where this comes")->type_name("TEXT");
  command->add_option("--device", flags->device, "cpu, cuda or cuda-emulated [cpu]")
      ->type_name("D");
  command->add_option("--threads", flags->threads, "Threads; changes no result [all cores]")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->callback([flags, prompt, action] {
    flags->has_prompt = prompt->count() > 0;
    *action = [flags] { return RunGenerate(*flags); };
  });
}

}  // namespace headwise
