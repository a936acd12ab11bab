#include "tools/typecheck/words.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "model/report/progress.h"

namespace headwise::typecheck {
namespace {

using Word = std::pair<const char*, const char*>;

constexpr Word kFactors[] = {{"B", "windows of tokens"},
                             {"L", "tokens of a window"},
                             {"G", "kv groups"},
                             {"M", "query heads of a kv group"},
                             {"D", "elements of a head"},
                             {"N", "the width of the residual stream"},
                             {"F", "hidden units"},
                             {"V", "the vocabulary"},
                             {"E", "experts"},
                             {"R", "rows of an expert"},
                             {"W", "the width of the experts"},
                             {"slots", "queries, key and value of a kv group"}};

constexpr Word kRoles[] = {
    {"embedding",
     "a vector for each token; a rank looks up the tokens of its share of the "
     "vocabulary and has zeros for the others, so the looked-up rows are P"},
    {"output_head", "a row for each token: a rank has the logits of its share of the vocabulary"},
    {"norm", "the weight of a norm, used for every token"},
    {"bias", "added to every token's row"},
    {"router", "scores every expert for a token: all of it is needed at once"},
    {"balancing_bias", "moved against the loads of all tokens, which every rank must know alike"},
    {"packed_qkv", "the heads of a kv group lie together, so whole groups can be shared out"},
    {"query", "rows are query heads"},
    {"key", "rows are key heads"},
    {"value", "rows are value heads"},
    {"attention_gate", "a gate for each query head: cut like the heads that it multiplies"},
    {"attention_output",
     "its columns are the heads, so with shares of them each rank has a term "
     "of the sum"},
    {"mlp", "a matrix of a feed-forward layer"},
    {"expert", "the matrices of the experts"}};

constexpr Word kBoundaries[] = {
    {"embedding.out", "the looked-up rows, on their way into the residual stream"},
    {"head.in", "the normed residual stream, on its way to the logits"},
    {"attention.in", "the normed residual stream, on its way to the heads of every rank"},
    {"attention.q", "queries; where kv groups are replicated each rank takes its query heads"},
    {"attention.k", "keys: a query must see those of all tokens of its window"},
    {"attention.v", "values, with their keys"},
    {"attention.out", "the output projection, on its way back to the residual stream"},
    {"ffn.in", "the normed residual stream, on its way to the feed-forward layer"},
    {"ffn.out", "the feed-forward layer's output, on its way back to the residual stream"},
    {"ffn.narrow", "tokens at the experts' width"},
    {"ffn.wide", "the experts' weighted sum, before it is as wide as the residual stream again"},
    {"ffn.dispatch", "rows of tokens, on their way to the ranks that hold their experts"},
    {"ffn.combine", "the experts' rows, on their way back to the ranks of their tokens"},
    {"ffn.experts_out", "the experts' output"},
    {"ffn.loads", "how many tokens chose each expert: their balancing needs those of all tokens"},
    {"ffn.balancing", "the loads, on their way into the auxiliary loss"},
    {"ffn.w2_bias", "a bias that every rank would add to its term of the sum"},
    {"shared.in", "the tokens, on their way to the expert that all of them go through"},
    {"shared.out", "the shared expert's output"},
    {"shared.w2_bias", "a bias that every rank would add to its term of the sum"}};

template <std::size_t N>
std::string Find(const Word (&words)[N], const std::string& key) {
  for (const auto& [name, text] : words) {
    if (key == name) return text;
  }
  return "";
}

std::string AxisName(const LayoutType& type, int axis) {
  return type.mesh().Axes(type.view())[static_cast<std::size_t>(axis)].name;
}

std::int64_t AxisSize(const LayoutType& type, int axis) {
  return type.mesh().Axes(type.view())[static_cast<std::size_t>(axis)].size;
}

// "kv groups (G)".
std::string FactorWord(const std::string& name) {
  const std::string word = Find(kFactors, name);
  return word.empty() ? name : absl::StrCat(word, " (", name, ")");
}

// The factor that an axis shards.
const ShardedFactor* FactorOf(const LayoutType& type, int axis) {
  for (const ShardedDim& dim : type.dims()) {
    for (const ShardedFactor& f : dim) {
      if (std::find(f.axes.begin(), f.axes.end(), axis) != f.axes.end()) return &f;
    }
  }
  return nullptr;
}

std::string ExplainStep(const Step& step, const LayoutType& at) {
  const bool from_invariant = [&] {
    const auto axes = at.mesh().Find(at.view(), step.axis);
    return axes.ok() && !axes->empty() && at.axis_type((*axes)[0]) == AxisType::kInvariant;
  }();
  switch (step.kind) {
    case StepKind::kAllReduce:
      return step.to == AxisType::kInvariant
                 ? "each rank has a term of the sum; added up, it is the residual stream that all "
                   "of them have alike. Nothing moves on the way back"
                 : "each rank has a term of the sum; added up, every rank uses it in its own way, "
                   "so the gradients are added up on the way back";
    case StepKind::kAllGather:
      return step.to == AxisType::kInvariant
                 ? "each rank has a share; side by side they are what all have alike. On the way "
                   "back each takes its slice"
                 : "each rank has a share and uses the whole in its own way; on the way back the "
                   "gradients are added up and scattered";
    case StepKind::kReduceScatter:
      return "each rank has a term of the sum; added up, each keeps its share. On the way back the "
             "shares are gathered";
    case StepKind::kAllToAll:
      return "the shares go from one dimension to another: each rank sends to all others. On the "
             "way back likewise";
    case StepKind::kConvert:
      if (step.to == AxisType::kReplicate) {
        return "from here every rank uses it in its own way; no data move. On the way back the "
               "gradients of their uses are added up: an all_reduce";
      }
      if (step.to == AxisType::kPartial) {
        return "one rank keeps it and the others have zeros, so that in a sum over the ranks it "
               "counts once";
      }
      return from_invariant ? "each rank takes its slice; on the way back the slices are gathered"
                            : "each rank takes its slice; on the way back the others are zeros, "
                              "and the gradient a term of a sum";
    case StepKind::kReinterpret:
      return "the ranks' values are terms of a sum from here on; no data move";
    case StepKind::kReinterpretMesh:
      return absl::StrCat("the same data on the same ranks, seen in the ", Name(step.view),
                          " view of the mesh; no data move");
  }
  return "";
}

}  // namespace

std::string ShapeText(const LayoutType& type) {
  const std::string text = type.ToString();
  return text.substr(0, text.find(']') + 1);
}

std::string AxesText(const LayoutType& type) {
  if (!type.defined()) return "";
  const std::string text = type.ToString();
  const std::size_t end = text.find(']') + 2;
  return end < text.size() ? text.substr(end) : "R";
}

std::string StepsText(const std::vector<Step>& steps) {
  return absl::StrJoin(steps, "; ", [](std::string* out, const Step& step) {
    absl::StrAppend(out, step.ToString());
  });
}

std::string WithCommas(std::int64_t n) {
  const std::string digits = absl::StrCat(n);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string BytesText(std::int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  return absl::StrCat(FormatBytes(static_cast<double>(bytes)), " (", WithCommas(bytes), ")");
}

std::vector<std::string> ExplainParameter(const LayoutType& type) {
  std::vector<std::string> lines;
  if (!type.defined()) return lines;
  for (int axis = 0; axis < static_cast<int>(type.axis_types().size()); ++axis) {
    const std::string begin =
        absl::StrCat(AxisName(type, axis), ": ", type.AxisToString(axis), ", ");
    const std::int64_t ranks = AxisSize(type, axis);
    switch (type.axis_type(axis)) {
      case AxisType::kReplicate:
        lines.push_back(
            absl::StrCat(begin, "whole on all ", ranks,
                         ", which use it in their own ways; its gradient is P: added up over ",
                         AxisName(type, axis)));
        break;
      case AxisType::kInvariant:
        lines.push_back(absl::StrCat(begin, "whole on all ", ranks,
                                     ", which do the same with it; each has all of its gradient, "
                                     "and adding them up would count it ",
                                     ranks, " times"));
        break;
      case AxisType::kShard: {
        const ShardedFactor* f = FactorOf(type, axis);
        lines.push_back(
            absl::StrCat(begin, "the ", f == nullptr ? 0 : f->factor.size, " of ",
                         f == nullptr ? "?" : FactorWord(f->factor.name), " are shared out to ",
                         ranks, " ranks; a rank's gradient is of its share: nothing to add up"));
        break;
      }
      case AxisType::kPartial:
        lines.push_back(absl::StrCat(begin, "the sum over the ranks is the value"));
        break;
      case AxisType::kVarying:
        lines.push_back(absl::StrCat(begin, "the ranks' data differ, and nothing says how"));
        break;
    }
  }
  return lines;
}

std::vector<std::string> ExplainSteps(const LayoutType& before, const std::vector<Step>& steps) {
  std::vector<std::string> lines;
  LayoutType at = before;
  for (const Step& step : steps) {
    if (!at.defined()) break;
    const auto axes = at.mesh().Find(at.view(), step.axis);
    // An axis of one rank has nothing to do.
    if (step.kind == StepKind::kReinterpretMesh || (axes.ok() && !axes->empty())) {
      lines.push_back(absl::StrCat(step.ToString(), ": ", ExplainStep(step, at)));
    }
    const auto next = Apply(step, at);
    if (!next.ok()) break;
    at = *next;
  }
  return lines;
}

std::string ExplainRole(const std::string& role) { return Find(kRoles, role); }

std::string ExplainBoundary(const std::string& boundary) {
  const std::vector<std::string> parts = absl::StrSplit(boundary, '.');
  if (parts.size() < 2) return "";
  return Find(kBoundaries, absl::StrCat(parts[parts.size() - 2], ".", parts.back()));
}

std::vector<std::string> Legend() {
  std::vector<std::string> lines = {
      "R  the same data, used by each rank in its own way; its gradient is P",
      "I  the same data and one computation that every rank repeats; its gradient is I",
      "S  the shares of the ranks, side by side, are the value; so is its gradient",
      "P  the sum over the ranks is the value; its gradient is R",
      "V  different data, and nothing says how they belong together"};
  std::vector<std::string> letters;
  for (const auto& [name, text] : kFactors) letters.push_back(absl::StrCat(name, " ", text));
  lines.push_back(absl::StrJoin(letters, ", "));
  return lines;
}

std::string Wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::vector<std::string> lines = {""};
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    absl::StrAppend(&lines.back(), lines.back().empty() ? "" : " ", word);
  }
  return absl::StrJoin(lines, absl::StrCat("\n", std::string(indent, ' ')));
}

}  // namespace headwise::typecheck
