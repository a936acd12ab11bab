#include "model/bench/decoder_units.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "model/bench/batches.h"
#include "model/bench/device.h"
#include "model/kv_cache.h"

namespace headwise {

absl::StatusOr<std::unique_ptr<UnitRunner>> PrefillRunner(Decoder& decoder, std::int64_t tokens,
                                                          ThreadPool& pool) {
  HW_ASSIGN_OR_RETURN(const std::shared_ptr<KvCache> cache, decoder.NewCache(1, tokens));
  auto prompt = std::make_shared<std::vector<std::vector<std::int32_t>>>(
      1, RandomTokens(tokens, decoder.config().vocab_size(), 3));
  return std::make_unique<HostRunner>(
      [cache] {
        cache->ResetRow(0);
        return absl::OkStatus();
      },
      [&decoder, &pool, cache, prompt] {
        decoder.Extend(*cache, *prompt, pool);
        return absl::OkStatus();
      });
}

absl::StatusOr<std::unique_ptr<UnitRunner>> DecodeRunner(Decoder& decoder, std::int64_t rows,
                                                         std::int64_t context, ThreadPool& pool) {
  HW_ASSIGN_OR_RETURN(const std::shared_ptr<KvCache> cache, decoder.NewCache(rows, context));
  std::vector<std::vector<std::int32_t>> prompts, next;
  const std::int64_t begin = std::max<std::int64_t>(0, context - kDecodeSteps);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto seed = static_cast<std::uint64_t>(4 + r);
    prompts.push_back(RandomTokens(begin, decoder.config().vocab_size(), seed));
    next.push_back(RandomTokens(1, decoder.config().vocab_size(), ~seed));
  }
  bool filled = false;
  return std::make_unique<HostRunner>(
      [&decoder, &pool, cache, rows, context, prompts = std::move(prompts), filled]() mutable {
        if (filled && cache->length(0) < context) return absl::OkStatus();
        for (std::int64_t r = 0; r < rows; ++r) cache->ResetRow(r);
        decoder.Extend(*cache, prompts, pool);
        filled = true;
        return absl::OkStatus();
      },
      [&decoder, &pool, cache, next = std::move(next)] {
        decoder.Extend(*cache, next, pool);
        return absl::OkStatus();
      });
}

absl::Status CheckTimedStep(const StepReport& report) {
  if (!report.skipped) return report.status;
  return absl::AbortedError(absl::StrCat(
      "train: the gradient of ", report.non_finite,
      " is not finite; expected finite gradients; try a lower learning rate by --set"));
}

}  // namespace headwise
