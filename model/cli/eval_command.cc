// muse eval: how well a model predicts a text.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/proto/message_fields.h"
#include "kernels/common/thread_pool.h"
#include "model/cli/commands.h"
#include "model/cli/device.h"
#include "model/cli/model_flags.h"
#include "model/cli/run_model.h"
#include "model/cli/window_logits.h"
#include "model/decoder.h"
#include "model/report/progress.h"
#include "model/train/run_config.h"
#include "model/train/token_windows.h"

namespace headwise {
namespace {

struct EvalFlags {
  std::string run, hf;
  std::string text;
  std::string format;         // of a DataConfig; empty: as the model was trained
  std::int64_t sequence = 0;  // tokens; 0: as the model was trained
  std::string logits;         // a file to write; empty: none
  std::string device = "cpu";
  int threads = 0;
};

struct EvalResult {
  double loss = 0;  // sum, nats
  std::int64_t targets = 0, tokens = 0;
  double seconds = 0;
};

// Every token but the first is predicted once, from the tokens before it in its window.
EvalResult Evaluate(const TokenFile& tokens, std::int64_t sequence, std::int64_t separator,
                    Decoder& decoder, ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const Clock::time_point start = Clock::now();
  Clock::time_point printed = start;
  EvalResult result;
  const std::int64_t predicted = tokens.size() - 1;
  for (std::int64_t begin = 0; begin < predicted; begin += sequence) {
    TokenBatch batch;
    const std::int64_t length = std::min(sequence, predicted - begin);
    AppendWindow(tokens, begin, length, separator, &batch);
    result.loss += decoder.Loss(batch, pool);
    result.targets += NumTargets(batch);
    result.tokens += length;
    const Clock::time_point now = Clock::now();
    result.seconds = std::chrono::duration<double>(now - start).count();
    if (!terminal || now - printed < std::chrono::milliseconds(200)) continue;
    printed = now;
    const double rate = static_cast<double>(result.tokens) / result.seconds;
    absl::FPrintF(stderr, "\reval  %d%%  loss %.4f  %s tokens/s  ETA %s\033[K",
                  100 * result.tokens / predicted,
                  result.loss / static_cast<double>(std::max<std::int64_t>(1, result.targets)),
                  FormatCount(rate),
                  FormatDuration(static_cast<double>(predicted - result.tokens) / rate));
  }
  if (terminal && printed != start) std::fprintf(stderr, "\n");
  return result;
}

absl::Status RunEval(const EvalFlags& flags) {
  HW_ASSIGN_OR_RETURN(const CommandDevice device, OpenDevice(flags.device));
  if (flags.text.empty()) {
    return absl::InvalidArgumentError("--text: expected a file, found none");
  }
  if (!flags.logits.empty()) HW_RETURN_IF_ERROR(CheckNewFile(flags.logits));
  HW_ASSIGN_OR_RETURN(const ModelSource source, OpenRunOrHf(flags.run, flags.hf));
  RunConfig config = source.config();
  if (!flags.format.empty()) {
    const absl::Status status = ApplySetting(absl::StrCat("data.format=", flags.format), &config);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--format: ", status.message()));
    }
  }
  config.mutable_data()->set_path(flags.text);
  const std::int64_t room = config.model().max_sequence_length();
  const std::int64_t sequence =
      flags.sequence > 0 ? flags.sequence : config.training().sequence_length();
  if (sequence > room) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sequence: expected at most model.max_sequence_length = ", room, ", found ", sequence));
  }
  HW_ASSIGN_OR_RETURN(const TokenFile tokens,
                      OpenTokens(config.data(), config.model().vocab_size()));
  if (tokens.size() < 2) {
    return absl::OutOfRangeError(
        absl::StrCat(flags.text, ": expected at least 2 tokens, found ", tokens.size()));
  }
  const std::int64_t window = std::min(sequence, tokens.size());
  ThreadPool pool(flags.threads > 0 ? flags.threads : DefaultThreads());
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                      MakeDecoder(source, config, device,
                                  {.loss_tokens = window,
                                   .cache_tokens = flags.logits.empty() ? 0 : window,
                                   .prompt_tokens = 1},
                                  pool));
  for (const std::string& broken : source.rejected()) {
    std::fprintf(stderr, "warning: skipped %s\n", broken.c_str());
  }

  const EvalResult result =
      Evaluate(tokens, sequence, config.data().document_separator(), *decoder, pool);
  if (result.targets == 0) {
    return absl::OutOfRangeError(
        absl::StrCat(flags.text, ": expected tokens to predict, found separators only"));
  }
  const double loss = result.loss / static_cast<double>(result.targets);
  if (!std::isfinite(loss)) {
    return absl::AbortedError(absl::StrCat("eval: the loss of ", flags.text,
                                           " is not finite; expected a number; the weights are "
                                           "not usable"));
  }
  const bool bytes = config.data().format() == BYTES;
  absl::PrintF(
      "model       %s\ntext        %s: %d %s, %d predicted, in windows of %d\n"
      "loss        %.4f nats/token\nperplexity  %.4f\n%-12s%.4f\nspeed       %s tokens/s\n",
      source.Describe(), flags.text, tokens.size(), bytes ? "bytes, a token each" : "tokens",
      result.targets, sequence, loss, std::exp(loss), bytes ? "bits/byte" : "bits/token",
      loss / std::log(2.0), FormatCount(static_cast<double>(result.tokens) / result.seconds));
  if (flags.logits.empty()) return absl::OkStatus();
  HW_RETURN_IF_ERROR(WriteWindowLogits(tokens, window, *decoder, pool, flags.logits));
  absl::PrintF("logits      %s: of the first %d tokens\n", flags.logits, window);
  return absl::OkStatus();
}

}  // namespace

void AddEvalCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      app.add_subcommand("eval", "Loss, perplexity and bits per byte of a text under a model");
  command->add_option("--run", flags->run, "Run directory or one checkpoint of it")
      ->check(NotEmpty())
      ->type_name("DIR");
  AddHfOption(command, &flags->hf);
  command->add_option("--text", flags->text, "The text, or tokens as --format says")
      ->check(NotEmpty())
      ->type_name("FILE");
  command
      ->add_option("--format", flags->format,
                   "BYTES, UINT16, UINT32 or LLM_C [as the model was trained]")
      ->check(NotEmpty())
      ->type_name("F");
  command
      ->add_option("--sequence", flags->sequence,
                   "Tokens of a window, which sees nothing before it [as the model was trained]")
      ->check(CLI::Range(1, 1000000000))
      ->type_name("N");
  command
      ->add_option("--logits", flags->logits,
                   "Also writes the logits of the first window there: tokens.0 and logits.0 of a "
                   "safetensors file")
      ->check(NotEmpty())
      ->type_name("FILE");
  command->add_option("--device", flags->device, "cpu, cuda or cuda-emulated [cpu]")
      ->type_name("D");
  command->add_option("--threads", flags->threads, "Threads; changes no result [all cores]")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->callback([flags, action] { *action = [flags] { return RunEval(*flags); }; });
}

}  // namespace headwise
