#include "tools/typecheck/text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/printable.h"
#include "model/report/progress.h"
#include "tools/typecheck/words.h"

namespace headwise::typecheck {
namespace {

constexpr std::size_t kColumns = 110;
constexpr std::size_t kIndent = 4;

// Columns as wide as their widest cell; the last one is not padded, and cells of `right` stand at
// its right end.
class Table {
 public:
  explicit Table(std::vector<bool> right) : right_(std::move(right)) {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  std::string ToString() const {
    std::vector<std::size_t> widths(right_.size(), 0);
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string pad(widths[i] - row[i].size(), ' ');
        absl::StrAppend(&line, "  ", right_[i] ? pad : "", row[i], right_[i] ? "" : pad);
      }
      line.resize(line.find_last_not_of(' ') + 1);
      absl::StrAppend(&out, line, "\n");
    }
    return out;
  }

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string AxisList(const Mesh& mesh, MeshView view) {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : mesh.Axes(view))
    parts.push_back(absl::StrCat(axis.name, "=", axis.size));
  return parts.empty() ? "1 rank" : absl::StrJoin(parts, " ");
}

std::string Explained(const std::string& line) {
  return absl::StrCat("      ", Wrapped(line, 8, kColumns - 8), "\n");
}

// Reductions that scatter.
std::int64_t GradientsThatEndAsShares(const Report& report) {
  std::int64_t count = 0;
  for (const PlannedGradient& one : report.checked->checker->gradient_plan().gradients()) {
    count += std::any_of(one.steps.begin(), one.steps.end(),
                         [](const Step& step) { return step.kind == StepKind::kReduceScatter; });
  }
  return count;
}

std::string Header(const Report& report) {
  const CheckRequest& request = report.request;
  const std::int64_t windows = report.request.sequences;
  std::string out = absl::StrFormat("%-12s%s, %d layers", "model", Printable(request.model.name()),
                                    static_cast<int>(request.model.num_layers()));
  if (report.parameters_of_model > 0) {
    absl::StrAppend(&out, ", ", WithCommas(report.parameters_of_model), " parameters");
  }
  absl::StrAppendFormat(&out, ", activations %s\n", Name(request.compute));
  absl::StrAppendFormat(&out, "%-12s%d: %s; for experts %s\n", "ranks", report.mesh.size(),
                        AxisList(report.mesh, MeshView::kDense),
                        AxisList(report.mesh, MeshView::kExpert));
  absl::StrAppendFormat(
      &out, "%-12s%s, sequence parallelism %s%s\n", "plan",
      report.own_plan ? "from a file" : "standard", request.sequence_parallel ? "on" : "off",
      request.edits.empty() ? ""
                            : absl::StrCat(", ", request.edits.size(),
                                           request.edits.size() == 1 ? " edit" : " edits"));
  absl::StrAppendFormat(
      &out, "%-12s%s of %d tokens\n", "pass",
      windows == 0 ? "a window for each dp rank" : absl::StrCat(windows, " windows over all ranks"),
      request.length);
  if (!report.rank_kinds.empty()) {
    absl::StrAppendFormat(
        &out, "%-12s%s, in %.0f ms\n", "checked",
        report.rank_kinds.size() == 1
            ? std::string("rank 0; all ranks are alike")
            : absl::StrCat("ranks ", absl::StrJoin(report.rank_kinds, ", "), ", one of each kind"),
        1000 * report.seconds);
  }
  return out;
}

std::string ParameterSection(const Report& report, bool explain) {
  std::string out = "\nparameters (of all ranks; a rank's share of one)\n";
  Table table({false, true, false, false, true});
  for (const ParameterRow& row : report.parameters) {
    table.Add({row.name, absl::StrCat(row.count), ShapeText(row.layout), AxesText(row.layout),
               FormatBytes(static_cast<double>(row.bytes))});
  }
  if (!explain) return out + table.ToString();
  for (const ParameterRow& row : report.parameters) {
    absl::StrAppend(&out, "  ", row.name, "  ", ShapeText(row.layout), "\n");
    absl::StrAppend(&out, Explained(absl::StrCat(row.role, ": ", ExplainRole(row.role))));
    for (const std::string& line : ExplainParameter(row.layout)) {
      absl::StrAppend(&out, Explained(line));
    }
  }
  return out;
}

std::string ActivationSection(const Report& report, bool explain) {
  std::string out = "\nactivations at the boundaries between parts, forward\n";
  for (const ActivationRow& row : report.activations) {
    if (row.backward) continue;
    const std::string shape = ShapeText(row.before), after = ShapeText(row.after);
    absl::StrAppend(&out, "  ", row.boundary, row.count > 1 ? absl::StrCat(" x ", row.count) : "",
                    "  ", shape, after == shape ? "" : absl::StrCat(" -> ", after), "\n      ",
                    AxesText(row.before));
    const std::vector<std::string> steps = ExplainSteps(row.before, row.steps);
    if (!steps.empty()) absl::StrAppend(&out, "  ->  ", AxesText(row.after));
    absl::StrAppend(&out, "\n");
    if (!explain && !steps.empty()) absl::StrAppend(&out, "      by ", StepsText(row.steps), "\n");
    if (!explain) continue;
    if (const std::string what = ExplainBoundary(row.boundary); !what.empty()) {
      absl::StrAppend(&out, Explained(what));
    }
    for (const std::string& line : steps) absl::StrAppend(&out, Explained(line));
  }
  return out;
}

// "all_reduce@dp,cp"; "none".
std::string ReductionText(const std::vector<Step>& steps) {
  std::string text;
  const Step* last = nullptr;
  for (const Step& step : steps) {
    if (last != nullptr && last->kind == step.kind) {
      absl::StrAppend(&text, ",", step.axis);
    } else {
      absl::StrAppend(&text, text.empty() ? "" : "; ", Name(step.kind), "@", step.axis);
    }
    last = &step;
  }
  return text.empty() ? "none" : text;
}

std::string GradientSection(const Report& report) {
  std::string out =
      "\ngradients, as the backward leaves them, and their reduction (bytes: sent, for one)\n";
  Table table({false, true, false, false, true});
  for (const GradientRow& row : report.gradients) {
    table.Add({row.parameter, absl::StrCat(row.count), AxesText(row.gradient),
               ReductionText(row.steps), FormatBytes(static_cast<double>(row.bytes_sent))});
  }
  absl::StrAppend(&out, table.ToString());
  if (!report.norm_groups.empty()) {
    absl::StrAppend(
        &out, "  ",
        Wrapped("squares for the norm are added up over " + report.norm_groups, 4, kColumns - 4),
        "\n");
  }
  return out;
}

std::string CommunicationSection(const Report& report) {
  std::string out = "\ncommunication of a step of one pass, sent by each rank\n";
  Table table({false, false, false, true, true, true});
  std::map<Phase, std::int64_t> sums;
  std::int64_t total = 0;
  const auto sum = [&](const std::string& what, std::int64_t bytes) {
    table.Add({what, "", "", "", FormatBytes(static_cast<double>(bytes)), WithCommas(bytes)});
  };
  for (std::size_t i = 0; i < report.communication.size(); ++i) {
    const CommunicationRow& row = report.communication[i];
    table.Add({Name(row.phase), row.axis, row.collective, absl::StrCat(row.count),
               FormatBytes(static_cast<double>(row.bytes)), WithCommas(row.bytes)});
    sums[row.phase] += row.bytes;
    total += row.bytes;
  }
  for (const auto& [phase, bytes] : sums) sum(absl::StrCat(Name(phase), ", sum"), bytes);
  sum("all", total);
  absl::StrAppend(&out, table.ToString(),
                  "  with n micro-batches forward and backward count n times, the rest once\n");
  if (!report.optimizer_error.empty()) {
    absl::StrAppend(&out, "  ",
                    Wrapped("the optimizer does not run on this layout: " + report.optimizer_error,
                            4, kColumns - 4),
                    "\n");
  }
  return out;
}

std::string MemorySection(const Report& report) {
  const Memory& most =
      *std::max_element(report.memory.begin(), report.memory.end(),
                        [](const Memory& a, const Memory& b) { return a.total() < b.total(); });
  std::string out = absl::StrCat("\nmemory of ",
                                 report.memory.size() == 1
                                     ? std::string("each rank")
                                     : absl::StrCat("rank ", most.rank, ", which needs the most"),
                                 "\n");
  Table table({false, true, true});
  const auto row = [&](const char* what, std::int64_t bytes) {
    table.Add({what, FormatBytes(static_cast<double>(bytes)), WithCommas(bytes)});
  };
  row("weights, fp32", most.weights);
  row("low-precision copies", most.copies);
  row("gradients, fp32", most.gradients);
  row("optimizer: Muon 4, AdamW 8 bytes an element", most.optimizer);
  row("activations at their peak", most.activations);
  row("sum", most.total());
  absl::StrAppend(&out, table.ToString(), "  ",
                  Wrapped("with n micro-batches log2(n) partial sums of the gradients come on top "
                          "(docs/numerics.md, section 8)",
                          4, kColumns - 4),
                  "\n");
  if (const std::int64_t shares = GradientsThatEndAsShares(report); shares > 0) {
    absl::StrAppend(
        &out, "  ",
        Wrapped(
            absl::StrCat(shares,
                         " gradients end as shares of their parameters (ZeRO): the optimizer's "
                         "state would be of the shares, and the new weights be gathered; neither "
                         "is in this account, and no run takes such a plan"),
            4, kColumns - 4),
        "\n");
  }
  return out;
}

std::string MistakeSection(const MistakeRow& row) {
  const auto line = [](const char* name, const std::string& text) {
    return absl::StrFormat("  %-10s%s\n", name, Wrapped(text, 12, kColumns - 12));
  };
  std::string out = "\nmistake\n";
  if (!row.module.empty()) out += line("where", row.module);
  if (!row.op.empty()) out += line("operation", row.op);
  if (!row.axis.empty()) out += line("axis", row.axis);
  for (std::size_t i = 0; i < row.operands.size(); ++i) {
    out += line(i == 0 ? "operands" : "", row.operands[i]);
  }
  out += line("why", row.why);
  if (row.fixes.empty()) return out;
  absl::StrAppend(&out, "  fixes, any one of them; each was tried on the whole model\n");
  for (const VerifiedFix& fix : row.fixes) {
    absl::StrAppend(&out, "    --edit '", fix.edit.ToString(), "'\n      each rank then sends ",
                    BytesText(fix.bytes_sent), " a step\n");
  }
  return out;
}

std::string MistakeSections(const Report& report) {
  std::string out;
  for (const MistakeRow& row : report.mistakes) out += MistakeSection(row);
  if (!report.mistakes.empty() && report.mistakes[0].fixes.empty()) {
    if (report.other_flags.empty()) {
      absl::StrAppend(&out,
                      "\nno single edit of the plan, and no other size of one axis, makes "
                      "everything right\n");
    } else {
      absl::StrAppend(&out,
                      "\nno single edit of the plan makes everything right; accepted, tried on the "
                      "whole model:\n");
      for (const std::string& flags : report.other_flags)
        absl::StrAppend(&out, "    ", flags, "\n");
    }
  }
  return absl::StrFormat(
      "%s\n%d %s; fixes searched for %.1f s\n", out, static_cast<int>(report.mistakes.size()),
      report.mistakes.size() == 1 ? "mistake" : "mistakes", report.search_seconds);
}

}  // namespace

std::string ReportText(const Report& report, const TextOptions& options) {
  std::string out = Header(report);
  if (!report.accepted()) return out + MistakeSections(report);
  if (options.explain) {
    absl::StrAppend(&out, "\ntypes on an axis, and the factors of shapes\n");
    for (const std::string& line : Legend()) {
      absl::StrAppend(&out, "  ", Wrapped(line, 5, kColumns - 4), "\n");
    }
  }
  absl::StrAppend(&out, ParameterSection(report, options.explain),
                  ActivationSection(report, options.explain), GradientSection(report),
                  CommunicationSection(report), MemorySection(report));
  return absl::StrCat(out, "\naccepted\n");
}

}  // namespace headwise::typecheck
