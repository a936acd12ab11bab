#include "tools/typecheck/json.h"

#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/typecheck/words.h"

namespace headwise::typecheck {
namespace {

using Json = nlohmann::ordered_json;

Json Axes(const Mesh& mesh, MeshView view) {
  Json axes = Json::array();
  for (const MeshAxis& axis : mesh.Axes(view)) {
    axes.push_back({{"axis", axis.name}, {"size", axis.size}});
  }
  return axes;
}

Json Steps(const std::vector<Step>& steps) {
  Json list = Json::array();
  for (const Step& step : steps) list.push_back(step.ToString());
  return list;
}

Json Parameters(const Report& report, bool explain) {
  Json list = Json::array();
  for (const ParameterRow& row : report.parameters) {
    Json one = {{"name", row.name},
                {"count", row.count},
                {"role", row.role},
                {"optimizer", row.optimizer},
                {"layout", row.layout.ToString()},
                {"shape", row.layout.GlobalShape()},
                {"local_shape", row.layout.LocalShape(0)},
                {"bytes", row.bytes}};
    if (explain) {
      Json& lines = one["explanation"] = Json::array({ExplainRole(row.role)});
      for (const std::string& line : ExplainParameter(row.layout)) lines.push_back(line);
    }
    list.push_back(std::move(one));
  }
  return list;
}

Json Activations(const Report& report, bool explain) {
  Json list = Json::array();
  for (const ActivationRow& row : report.activations) {
    Json one = {{"boundary", row.boundary},      {"count", row.count},
                {"backward", row.backward},      {"before", row.before.ToString()},
                {"after", row.after.ToString()}, {"steps", Steps(row.steps)}};
    if (explain) {
      Json& lines = one["explanation"] = Json::array({ExplainBoundary(row.boundary)});
      for (const std::string& line : ExplainSteps(row.before, row.steps)) lines.push_back(line);
    }
    list.push_back(std::move(one));
  }
  return list;
}

Json Gradients(const Report& report) {
  Json list = Json::array();
  for (const GradientRow& row : report.gradients) {
    list.push_back({{"parameter", row.parameter},
                    {"count", row.count},
                    {"gradient", row.gradient.ToString()},
                    {"steps", Steps(row.steps)},
                    {"reduced", row.reduced.ToString()},
                    {"bytes_sent", row.bytes_sent}});
  }
  return list;
}

Json CommunicationList(const Report& report) {
  Json list = Json::array();
  for (const CommunicationRow& row : report.communication) {
    list.push_back({{"phase", Name(row.phase)},
                    {"axis", row.axis},
                    {"collective", row.collective},
                    {"count", row.count},
                    {"bytes", row.bytes}});
  }
  return list;
}

Json MemoryList(const Report& report) {
  Json list = Json::array();
  for (const Memory& one : report.memory) {
    list.push_back({{"rank", one.rank},
                    {"weights", one.weights},
                    {"copies", one.copies},
                    {"gradients", one.gradients},
                    {"optimizer", one.optimizer},
                    {"activations", one.activations},
                    {"total", one.total()}});
  }
  return list;
}

Json Mistakes(const Report& report) {
  Json list = Json::array();
  for (const MistakeRow& row : report.mistakes) {
    Json fixes = Json::array();
    for (const VerifiedFix& fix : row.fixes) {
      fixes.push_back({{"edit", fix.edit.ToString()}, {"bytes_sent", fix.bytes_sent}});
    }
    list.push_back({{"module", row.module},
                    {"count", row.count},
                    {"op", row.op},
                    {"axis", row.axis},
                    {"operands", row.operands},
                    {"why", row.why},
                    {"message", row.message},
                    {"fixes", std::move(fixes)}});
  }
  return list;
}

}  // namespace

std::string ReportJson(const Report& report, const JsonOptions& options) {
  const CheckRequest& request = report.request;
  std::vector<std::string> edits;
  for (const PlanEntry& edit : request.edits) edits.push_back(edit.ToString());
  std::int64_t bytes = 0;
  for (const CommunicationRow& row : report.communication) bytes += row.bytes;
  const Json json = {{"model", request.model.name()},
                     {"layers", request.model.num_layers()},
                     {"parameters_of_model", report.parameters_of_model},
                     {"compute", Name(request.compute)},
                     {"mesh",
                      {{"ranks", report.mesh.size()},
                       {"dense", Axes(report.mesh, MeshView::kDense)},
                       {"expert", Axes(report.mesh, MeshView::kExpert)}}},
                     {"sequence_parallel", request.sequence_parallel},
                     {"own_plan", report.own_plan},
                     {"edits", edits},
                     {"sequences", request.sequences},
                     {"length", request.length},
                     {"accepted", report.accepted()},
                     {"rank_kinds", report.rank_kinds},
                     {"seconds", report.seconds},
                     {"parameters", Parameters(report, options.explain)},
                     {"activations", Activations(report, options.explain)},
                     {"gradients", Gradients(report)},
                     {"gradient_norm", report.norm_groups},
                     {"communication", CommunicationList(report)},
                     {"bytes_sent", bytes},
                     {"optimizer_error", report.optimizer_error},
                     {"memory", MemoryList(report)},
                     {"mistakes", Mistakes(report)},
                     {"other_flags", report.other_flags},
                     {"search_seconds", report.search_seconds}};
  // Names come from configurations: whatever bytes they are, the text is JSON.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace headwise::typecheck
