#include "model/generate/generate.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "model/kv_cache.h"

namespace headwise {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// A terminal must not obey what a model says.
std::string Printable(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// Holds back as much text as could be the beginning of the stop string.
class Stream {
 public:
  Stream(std::string stop, std::FILE* out) : stop_(std::move(stop)), out_(out) {}

  // False once the stop string has come.
  bool Append(const std::string& text) {
    pending_ += text;
    if (stop_.empty()) {
      Flush();
      return true;
    }
    const std::size_t at = pending_.find(stop_);
    if (at != std::string::npos) {
      pending_.resize(at);
      Flush();
      return false;
    }
    std::size_t kept = std::min(pending_.size(), stop_.size() - 1);
    while (kept > 0 && pending_.compare(pending_.size() - kept, kept, stop_, 0, kept) != 0) --kept;
    Write(pending_.substr(0, pending_.size() - kept));
    pending_.erase(0, pending_.size() - kept);
    return true;
  }

  void Flush() {
    Write(pending_);
    pending_.clear();
  }

 private:
  void Write(const std::string& text) {
    const std::string printable = Printable(text);
    std::fwrite(printable.data(), 1, printable.size(), out_);
    std::fflush(out_);
  }

  std::string stop_, pending_;
  std::FILE* out_;
};

}  // namespace

absl::StatusOr<std::vector<std::int32_t>> EncodePrompt(const RunConfig& config,
                                                       const std::string& prompt) {
  std::vector<std::int32_t> tokens;
  if (config.data().format() == BYTES) {
    for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  } else {
    for (const auto& word : absl::StrSplit(prompt, absl::ByAnyChar(", \n"), absl::SkipEmpty())) {
      std::int32_t token;
      if (!absl::SimpleAtoi(word, &token)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--prompt: this model's tokens are ids: expected numbers such as 12,7,99, found '",
            word, "'"));
      }
      tokens.push_back(token);
    }
  }
  if (tokens.empty()) {
    return absl::InvalidArgumentError("--prompt: expected at least one token, found none");
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config.model().vocab_size()) {
      return absl::InvalidArgumentError(absl::StrCat("--prompt: token ", i, " is ", tokens[i],
                                                     "; expected 0 to ",
                                                     config.model().vocab_size() - 1));
    }
  }
  return tokens;
}

std::string DecodeToken(const DataConfig& data, std::int32_t token) {
  if (data.format() != BYTES) return absl::StrCat(token, " ");
  if (token > 255) return absl::StrCat("<", token, ">");
  return std::string(1, static_cast<char>(token));
}

std::string DefaultPrompt(const RunConfig& config) {
  return config.data().format() == BYTES ? "And it came to pass " : "0";
}

absl::Status CheckGenerateOptions(const ModelConfig& model, const GenerateOptions& options) {
  HW_RETURN_IF_ERROR(ValidateSamplerOptions(options.sampler));
  const std::int64_t prompt_tokens = static_cast<std::int64_t>(options.prompt.size());
  const std::int64_t room = model.max_sequence_length();
  if (options.prompt.empty() || prompt_tokens > room) {
    return absl::InvalidArgumentError(absl::StrCat("--prompt: expected 1 to ", room,
                                                   " tokens (model.max_sequence_length), found ",
                                                   prompt_tokens));
  }
  if (options.max_tokens < 0 || options.max_tokens > room - prompt_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-tokens: the prompt's ", prompt_tokens, " tokens and ",
                     options.max_tokens, " new ones do not fit model.max_sequence_length = ", room,
                     "; try --max-tokens ", std::max<std::int64_t>(0, room - prompt_tokens)));
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerateReport> Generate(Decoder& decoder, const DataConfig& data,
                                        const GenerateOptions& options, std::FILE* out,
                                        ThreadPool& pool) {
  HW_RETURN_IF_ERROR(CheckGenerateOptions(decoder.config(), options));
  const std::int64_t prompt_tokens = static_cast<std::int64_t>(options.prompt.size());
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<KvCache> cache,
                      decoder.NewCache(1, prompt_tokens + options.max_tokens));
  GenerateReport report;
  report.prompt_tokens = prompt_tokens;
  Stream stream(options.stop, out);
  {
    Stream prompt("", out);
    for (const std::int32_t token : options.prompt) prompt.Append(DecodeToken(data, token));
  }

  Sampler sampler(options.sampler);
  std::vector<std::int32_t> next = options.prompt;
  while (report.new_tokens < options.max_tokens) {
    const auto start = Clock::now();
    const Tensor logits = decoder.Extend(*cache, absl::MakeConstSpan(&next, 1), pool);
    (report.new_tokens == 0 ? report.prefill_seconds : report.decode_seconds) += Seconds(start);
    if (cache->decode_graph() != nullptr) report.graph_kernels = cache->decode_graph()->kernels();
    absl::StatusOr<std::int32_t> token = sampler.Draw(
        absl::MakeConstSpan(logits.data<float>(), static_cast<std::size_t>(logits.size())));
    if (!token.ok()) {
      return absl::AbortedError(absl::StrCat("generate: token ", report.new_tokens, ": ",
                                             token.status().message(),
                                             "; the weights are not usable"));
    }
    ++report.new_tokens;
    if (!stream.Append(DecodeToken(data, *token))) return report;
    next = {*token};
  }
  stream.Flush();
  return report;
}

}  // namespace headwise
