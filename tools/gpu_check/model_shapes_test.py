#!/usr/bin/env -S python3 -B
"""The shapes of model_shapes.py are those of the presets that they name. Arguments: muse_17m.textproto, muse_spark.textproto."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import model_shapes  # pylint: disable=wrong-import-position

_PRESETS = {}


def parse(text):
    """{"dim": "512", "attention": {...}, ...} of a textproto: messages, scalars and lists, each name once in its message."""
    tokens = re.findall(r'"[^"]*"|\[[^\]]*\]|[{}]|[^\s{}:]+', re.sub(r"#.*", "", text))
    stack, name = [{}], None
    for token in tokens:
        if token == "{":
            stack[-1][name] = {}
            stack.append(stack[-1][name])
            name = None
        elif token == "}":
            stack.pop()
        elif name is None:
            name = token
            continue
        else:
            stack[-1][name] = token.strip('"')
        name = None
    return stack[0]


_NORMS = {"NORM_ABSENT": None, "RMS": "rms", "RMS_GAIN_CENTERED": "gain_centred", "RMS_SCALELESS": "scaleless",
          "RMS_INPUT_SCALED": "input_scaled"}


def shape_of(preset):
    """The Shape that a preset describes."""
    model = parse(preset)["model"]
    attention, ffn = model["attention"], model["ffn"]
    rope, moe = attention["rope"], ffn.get("moe")
    window_pattern = re.findall(r"\d+", attention["window_pattern"])
    experts = moe and model_shapes.Experts(count=int(moe["num_experts"]), chosen=int(moe["experts_per_token"]),
                                           width=int(moe["expert_width"]), hidden=int(moe["expert_dim"]))
    norms = {name: _NORMS[model[name]["style"]] for name in (
        "embedding_norm", "attention_norm", "post_attention_norm", "ffn_norm", "post_ffn_norm")}
    return model_shapes.Shape(
        vocab_size=int(model["vocab_size"]), dim=int(model["dim"]), num_layers=int(model["num_layers"]),
        num_query_heads=int(attention["num_query_heads"]), num_kv_heads=int(attention["num_kv_heads"]),
        head_dim=int(attention["head_dim"]), hidden_dim=int(ffn["hidden_dim"]), experts=experts, theta=float(rope["theta"]),
        nope_every=int(rope["nope_every"]), window_pattern=tuple(map(int, window_pattern)),
        head_norm=attention["head_norm"] == "HEAD_NORM_SCALELESS", query_scale=float(attention["query_scale"]),
        output_norm=float(attention["output_norm_epsilon"]) > 0, output_gate=attention["output_gate"] == "true",
        residual_gate_temperature=float(model["residual_gate_temperature"]),
        router_multiplier=float(moe["router_multiplier"]) if moe else 1.0, logit_multiplier=float(model["logit_multiplier"]),
        logit_cap=float(model["logit_cap"]), **norms)


class ModelShapesTest(unittest.TestCase):

    def test_shapes_are_those_of_the_presets(self):
        self.assertEqual(model_shapes.MUSE_17M, shape_of(_PRESETS["muse_17m"]))
        self.assertEqual(model_shapes.MUSE_SPARK, shape_of(_PRESETS["muse_spark"]))

    def test_four_layers_of_muse_spark_are_three_that_slide_and_one_that_does_not(self):
        unit = model_shapes.SHAPES["muse_spark"]
        self.assertEqual([unit.window(layer) for layer in range(4)], [2048, 2048, 2048, 0])
        self.assertEqual([unit.rotates(layer) for layer in range(4)], [True, True, True, False])
        self.assertEqual([model_shapes.MUSE_SPARK.window(layer) for layer in (0, 1, 2, 61)], [2048, 0, 2048, 0])


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            _PRESETS[os.path.basename(path)[:-len(".textproto")]] = file.read()
    unittest.main(argv=sys.argv[:1])
