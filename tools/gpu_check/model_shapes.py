"""The models that torch_bench.py makes in PyTorch, as their presets (model/presets) describe them; no PyTorch in here.

    SHAPES["muse_17m"], SHAPES["muse_spark"]

muse_spark is four of its layers.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Experts:
    """Of each layer; each is width -> hidden -> width, between projections from and to the model's own width."""
    count: int
    chosen: int
    width: int
    hidden: int


@dataclasses.dataclass(frozen=True)
class Shape:
    """What of a ModelConfig a preset here sets. Norms are "rms", "gain_centred", "scaleless", "input_scaled" or None."""
    vocab_size: int
    dim: int
    num_layers: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int = 0
    experts: Experts | None = None
    theta: float = 10000.0
    nope_every: int = 0
    window_pattern: tuple = (0,)
    head_norm: bool = False  # scaleless
    query_scale: float = 1.0
    output_norm: bool = False  # scaleless
    output_gate: bool = False
    residual_gate_temperature: float = 0.0
    embedding_norm: str | None = None
    attention_norm: str = "rms"
    post_attention_norm: str | None = None
    ffn_norm: str = "rms"
    post_ffn_norm: str | None = None
    router_multiplier: float = 1.0
    logit_multiplier: float = 1.0
    logit_cap: float = 0.0

    def rotates(self, layer):
        return self.nope_every == 0 or (self.num_layers - layer - 1) % self.nope_every != 0

    def window(self, layer):
        """Keys that a query sees; 0: all before it."""
        period = len(self.window_pattern)
        shift = self.nope_every - self.num_layers % self.nope_every if self.nope_every else 0
        return self.window_pattern[(layer + shift) % period]


MUSE_17M = Shape(vocab_size=256, dim=512, num_layers=6, num_query_heads=8, num_kv_heads=2, head_dim=64, hidden_dim=1408)

MUSE_SPARK = Shape(vocab_size=202048, dim=8192, num_layers=62, num_query_heads=128, num_kv_heads=16, head_dim=64,
                   experts=Experts(count=256, chosen=8, width=4096, hidden=4096), theta=500000.0, nope_every=4,
                   window_pattern=(2048, 2048, 2048, 0), head_norm=True, query_scale=5.4730064863875, output_norm=True,
                   output_gate=True, residual_gate_temperature=0.3, embedding_norm="scaleless", attention_norm="gain_centred",
                   post_attention_norm="scaleless", ffn_norm="gain_centred", post_ffn_norm="input_scaled",
                   router_multiplier=0.1767766952966369, logit_multiplier=0.1767766952966369, logit_cap=20.0)

# What of Muse Spark fits on one GPU with its optimizer's state; three layers that slide and one that does not:
#   muse bench --preset muse_spark --layers 4 --set model.ffn.moe.num_experts=8 --set model.vocab_size=16384
SPARK_UNIT = dataclasses.replace(MUSE_SPARK, num_layers=4, vocab_size=16384,
                                 experts=dataclasses.replace(MUSE_SPARK.experts, count=8))

# The same parts for a test on a CPU.
SPARK_TINY = dataclasses.replace(SPARK_UNIT, vocab_size=64, dim=64, num_query_heads=8, num_kv_heads=2, head_dim=8,
                                 experts=Experts(count=4, chosen=2, width=32, hidden=24), window_pattern=(5, 5, 5, 0))

SHAPES = {"muse_17m": MUSE_17M, "muse_spark": SPARK_UNIT, "tiny": SPARK_TINY}
