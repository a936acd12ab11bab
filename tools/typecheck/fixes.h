// What would make a wrong layout right: edits of the plan and changes of the flags, each of which
// was tried on the whole model, every kind of rank.
#ifndef HEADWISE_TOOLS_TYPECHECK_FIXES_H_
#define HEADWISE_TOOLS_TYPECHECK_FIXES_H_

#include <string>
#include <vector>

#include "core/parallel/layout_checker.h"
#include "tools/typecheck/check.h"

namespace headwise::typecheck {

// Edits of one entry of the plan, cheapest first, at most `most`. The search (FindFixes) runs on the
// model cut to a few layers (cut_model.h), with the layer of the mistake among them; what it finds
// is then checked on the whole. Empty where no single edit makes everything right.
std::vector<VerifiedFix> FindPlanFixes(const CheckRequest& request, const ShardedLayout& layout,
                                       const LayoutMistake& mistake, std::size_t most = 3);

// Other flags under which everything is accepted, at most `most`: without one of the edits, or other
// sizes: "--length 4096", "--mesh dp=2,tp=4". Also for a mesh that has no standard layout.
std::vector<std::string> FindOtherFlags(const CheckRequest& request, std::size_t most = 3);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_FIXES_H_
