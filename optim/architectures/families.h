// The rules, family by family; registry.cc puts them into one table.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_FAMILIES_H_
#define HEADWISE_OPTIM_ARCHITECTURES_FAMILIES_H_

#include <vector>

#include "optim/architectures/rule.h"

namespace headwise {

std::vector<ArchitectureRule> GroupedQueryRules();     // llama, mistral, qwen, gemma, ...
std::vector<ArchitectureRule> MultiHeadRules();        // opt, gptj, gpt_neo, vision towers, ...
std::vector<ArchitectureRule> PerLayerRules();         // laguna, mimo_v2_flash
std::vector<ArchitectureRule> GatedRules();            // muse_glimmer, afmoe
std::vector<ArchitectureRule> FalconRules();           // falcon
std::vector<ArchitectureRule> PerHeadQkvRules();       // gpt_neox, bloom, persimmon
std::vector<ArchitectureRule> GptRules();              // gpt2, gpt_bigcode, codegen
std::vector<ArchitectureRule> FusedQkvRules();         // mpt, dbrx, phi3, chatglm, internlm2, ...
std::vector<ArchitectureRule> LatentAttentionRules();  // deepseek_v2, deepseek_v3, ...
std::vector<ArchitectureRule> LinearAttentionRules();  // qwen3_next, qwen3_5_text, kimi_linear, ...
std::vector<ArchitectureRule> MultimodalRules();       // llava, gemma3, qwen2_5_vl, ...

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_FAMILIES_H_
