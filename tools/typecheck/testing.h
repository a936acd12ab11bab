// Requests for tests: a preset on a mesh.
#ifndef HEADWISE_TOOLS_TYPECHECK_TESTING_H_
#define HEADWISE_TOOLS_TYPECHECK_TESTING_H_

#include <initializer_list>
#include <string>

#include "core/base/check.h"
#include "model/presets/presets.h"
#include "tools/typecheck/report.h"

namespace headwise::typecheck {

inline CheckRequest RequestFor(const std::string& preset, const std::string& mesh,
                               bool sequence_parallel = false,
                               std::initializer_list<const char*> edits = {}) {
  const RunConfig config = *LoadPreset(preset);
  CheckRequest request = {.model = config.model(),
                          .mesh = *Mesh::Parse(mesh),
                          .sequence_parallel = sequence_parallel,
                          .length = 64,
                          .optimizer = config.optimizer()};
  for (const char* edit : edits) request.edits.push_back(*PlanEntry::Parse(edit));
  return request;
}

inline Report ReportFor(const CheckRequest& request, const ReportOptions& options = {}) {
  auto report = MakeReport(request, options);
  HW_CHECK(report.ok()) << report.status();
  return *std::move(report);
}

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_TESTING_H_
