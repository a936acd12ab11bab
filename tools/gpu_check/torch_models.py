"""The decoder of docs/model.md in PyTorch, with the parts that the shapes of model_shapes.py have. Parameters have Headwise's names
and shapes, so that a run's model.safetensors loads with load_state_dict.

    model = Decoder(SHAPES["muse_17m"])
    loss = model.loss(tokens, targets, model.context(0, T))     # [B, T] each
    cache = model.cache(batch, length)
    logits = model.decode(tokens, cache, model.context(length - 1, 1), length - 1)     # [B], all at one position
"""

import torch
from torch import nn
from torch.nn import functional

try:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    _flex = torch.compile(flex_attention, dynamic=False)
except ImportError:
    create_block_mask = _flex = None


class Norm(nn.Module):
    """RMS norm of rows in fp32, in one of rms_norm.h's styles."""

    def __init__(self, style, width, epsilon):
        super().__init__()
        self.style, self.epsilon = style, epsilon
        if style != "scaleless":
            self.weight = nn.Parameter(torch.full((width,), 1.0 if style == "rms" else 0.0))

    def forward(self, x):
        wide = x.float()
        if self.style == "input_scaled":
            wide = wide * (1 + self.weight.float())
        y = functional.rms_norm(wide, wide.shape[-1:], eps=self.epsilon)
        if self.style == "rms":
            y = y * self.weight.float()
        elif self.style == "gain_centred":
            y = y * (1 + self.weight.float())
        return y.to(x.dtype)


def norm(style, width, epsilon):
    return nn.Identity() if style is None else Norm(style, width, epsilon)


def linear(inputs, outputs):
    """[outputs, inputs], as Headwise's."""
    return nn.Parameter(torch.empty(outputs, inputs).normal_(std=0.02))


def rotate(x, cos, sin):
    """RoPE by halves; cos, sin [T, D/2]."""
    first, second = x.float().chunk(2, -1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


def sliding_mask(tokens, window, device):
    """What attend() wants of queries that see `window` keys each; None where they see all before them (window 0)."""
    if window == 0 or window >= tokens:
        return None
    if device.type == "cuda" and _flex is not None:
        return create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < window), None, None, tokens, tokens, device=device)
    place = torch.arange(tokens, device=device)
    behind = place[:, None] - place[None, :]
    return (behind >= 0) & (behind < window)


def attend(q, k, v, mask):
    """Causal attention, q [B, H, T, D], k and v [B, G, T, D]; mask from sliding_mask()."""
    if mask is None or isinstance(mask, torch.Tensor):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
    return _flex(q, k, v, block_mask=mask, enable_gqa=True)


class Attention(nn.Module):

    def __init__(self, shape, layer):
        super().__init__()
        self.shape, self.window, self.rotates = shape, shape.window(layer), shape.rotates(layer)
        width = shape.num_query_heads * shape.head_dim
        self.wqkv = linear(shape.dim, width + 2 * shape.num_kv_heads * shape.head_dim)
        if shape.output_gate:
            self.gate = linear(shape.dim, width)
        self.wo = linear(width, shape.dim)
        self.head_norm = norm("scaleless" if shape.head_norm else None, shape.head_dim, 1e-5)
        self.output_norm = norm("scaleless" if shape.output_norm else None, shape.head_dim, 1e-5)

    def prepare(self, x, cos, sin):
        """q [B, T, H, D], k and v [B, T, G, D]."""
        shape = self.shape
        batch, tokens = x.shape[:2]
        group = shape.num_query_heads // shape.num_kv_heads
        packed = functional.linear(x, self.wqkv).view(batch, tokens, shape.num_kv_heads, group + 2, shape.head_dim)
        q, k, v = packed.split([group, 1, 1], 3)
        q, k = self.head_norm(q.reshape(batch, tokens, -1, shape.head_dim)), self.head_norm(k.squeeze(3))
        if shape.query_scale != 1:
            q = q * shape.query_scale
        if self.rotates:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return q, k, v.squeeze(3)

    def finish(self, x, o):
        """o [B, T, H, D]."""
        o = self.output_norm(o).reshape(*x.shape[:2], -1)
        if self.shape.output_gate:
            o = o * torch.sigmoid(functional.linear(x, self.gate))
        return functional.linear(o, self.wo)

    def forward(self, x, context):
        q, k, v = (t.transpose(1, 2) for t in self.prepare(x, context["cos"], context["sin"]))
        return self.finish(x, attend(q, k, v, context["masks"][self.window]).transpose(1, 2))

    def decode(self, x, context, keys, values, position):
        """x [B, 1, dim]; keys and values [B, G, S, D] hold those before `position`, and get this one's."""
        q, k, v = (t.transpose(1, 2) for t in self.prepare(x, context["cos"], context["sin"]))
        keys[:, :, position:position + 1] = k
        values[:, :, position:position + 1] = v
        first = max(0, position + 1 - self.window) if self.window else 0
        seen = slice(first, position + 1)
        o = functional.scaled_dot_product_attention(q, keys[:, :, seen], values[:, :, seen], enable_gqa=True)
        return self.finish(x, o.transpose(1, 2))


class Ffn(nn.Module):

    def __init__(self, shape):
        super().__init__()
        self.w1, self.w3 = linear(shape.dim, shape.hidden_dim), linear(shape.dim, shape.hidden_dim)
        self.w2 = linear(shape.hidden_dim, shape.dim)

    def forward(self, x):
        return functional.linear(functional.silu(functional.linear(x, self.w1)) * functional.linear(x, self.w3), self.w2)


def grouped_linear(x, weight, ends):
    """x [R, K] by groups that end at `ends` (int32), weight [E, N, K]: each group by its expert's weight."""
    if x.dtype == torch.bfloat16 and hasattr(torch, "_grouped_mm"):
        return torch._grouped_mm(x, weight.to(x.dtype).transpose(-2, -1), offs=ends)  # pylint: disable=protected-access
    rows = [0] + ends.tolist()
    return torch.cat([functional.linear(x[a:b], w) for a, b, w in zip(rows, rows[1:], weight)])


class MoE(nn.Module):

    def __init__(self, shape):
        super().__init__()
        e = self.experts = shape.experts
        self.multiplier = shape.router_multiplier
        self.router = linear(shape.dim, e.count)
        self.register_buffer("balancing_bias", torch.zeros(e.count))
        self.pre_expert_proj = linear(shape.dim, e.width)
        self.pre_expert_norm = Norm("gain_centred", e.width, 1e-5)
        self.w1 = nn.Parameter(torch.empty(e.count, e.hidden, e.width).normal_(std=0.02))
        self.w3 = nn.Parameter(torch.empty(e.count, e.hidden, e.width).normal_(std=0.02))
        self.w2 = nn.Parameter(torch.empty(e.count, e.width, e.hidden).normal_(std=0.02))
        self.post_expert_norm = Norm("input_scaled", e.width, 1e-8)
        self.post_expert_proj = linear(e.width, shape.dim)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        scores = torch.sigmoid(functional.linear(flat, self.router).float() * self.multiplier)
        chosen = torch.topk(scores + self.balancing_bias, self.experts.chosen, dim=-1).indices
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        ends = (chosen.flatten()[:, None] == torch.arange(self.experts.count, device=x.device)).sum(0)
        ends = ends.cumsum(0).to(torch.int32)
        rows = self.pre_expert_norm(functional.linear(flat, self.pre_expert_proj))[order // self.experts.chosen]
        hidden = functional.silu(grouped_linear(rows, self.w1, ends)) * grouped_linear(rows, self.w3, ends)
        rows = self.post_expert_norm(grouped_linear(hidden, self.w2, ends))
        rows = torch.zeros_like(rows).index_copy(0, order, rows).view(flat.shape[0], self.experts.chosen, -1)
        combined = (rows.float() * weights[..., None]).sum(1).to(x.dtype)
        return functional.linear(combined, self.post_expert_proj).view(x.shape)


class Layer(nn.Module):

    def __init__(self, shape, layer):
        super().__init__()
        self.temperature = shape.residual_gate_temperature
        self.attention_norm = norm(shape.attention_norm, shape.dim, 1e-5)
        self.attention = Attention(shape, layer)
        self.post_attention_norm = norm(shape.post_attention_norm, shape.dim, 1e-8)
        self.ffn_norm = norm(shape.ffn_norm, shape.dim, 1e-5)
        self.ffn = Ffn(shape) if shape.experts is None else MoE(shape)
        self.post_ffn_norm = norm(shape.post_ffn_norm, shape.dim, 1e-8)
        if self.temperature:
            self.attention_residual_gate = nn.Parameter(torch.zeros(shape.dim))
            self.ffn_residual_gate = nn.Parameter(torch.zeros(shape.dim))

    def join(self, h, branch, gate):
        """The residual add, gated (residual_gate.h) where the model has it."""
        if not self.temperature:
            return h + branch
        beta = torch.sigmoid(gate.float() / self.temperature)
        alpha = ((1 - beta) * (1 + beta)).clamp(min=1e-3).sqrt()
        return (alpha * h.float() + beta * branch.float()).to(h.dtype)

    def forward(self, h, attention):
        h = self.join(h, self.post_attention_norm(attention(self.attention, self.attention_norm(h))),
                      getattr(self, "attention_residual_gate", None))
        return self.join(h, self.post_ffn_norm(self.ffn(self.ffn_norm(h))), getattr(self, "ffn_residual_gate", None))


class Decoder(nn.Module):

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Module()
        self.embedding.weight = nn.Parameter(torch.empty(shape.vocab_size, shape.dim).normal_())
        self.embedding_norm = norm(shape.embedding_norm, shape.dim, 1e-5)
        self.layers = nn.ModuleList([Layer(shape, l) for l in range(shape.num_layers)])
        self.final_norm = Norm("rms", shape.dim, 1e-5)
        self.head = nn.Module()
        self.head.weight = nn.Parameter(torch.empty(shape.vocab_size, shape.dim).normal_(std=shape.dim**-0.5))

    def context(self, first, count):
        """What passes over `count` positions from `first` on share, made once, outside of what is compiled."""
        shape, device = self.shape, self.head.weight.device
        half = torch.arange(0, shape.head_dim, 2, device=device).double() / shape.head_dim
        angle = (torch.arange(count, device=device).double() + first)[:, None] * shape.theta**-half
        return {"cos": angle.cos().float(), "sin": angle.sin().float(),
                "masks": {window: sliding_mask(count, window, device) for window in shape.window_pattern}}

    def hidden(self, tokens, dtype, attention):
        h = self.embedding_norm(functional.embedding(tokens, self.embedding.weight).to(dtype))
        for number, layer in enumerate(self.layers):
            h = layer(h, lambda a, x, number=number: attention(a, x, number))
        return self.final_norm(h)

    def logits(self, x):
        z = functional.linear(x, self.head.weight).float()
        if self.shape.logit_cap:
            return self.shape.logit_cap * torch.tanh(z * (self.shape.logit_multiplier / self.shape.logit_cap))
        return z * self.shape.logit_multiplier

    def loss(self, tokens, targets, context, dtype=torch.bfloat16):
        """The mean over tokens [B, T]; context(0, T)."""
        x = self.hidden(tokens, dtype, lambda attention, x, _: attention(x, context))
        return functional.cross_entropy(self.logits(x).flatten(0, 1), targets.flatten())

    def prefill(self, tokens, context, dtype=torch.bfloat16):
        """The last token's logits [B, V]; keys and values are made, and not kept."""
        return self.logits(self.hidden(tokens, dtype, lambda attention, x, _: attention(x, context))[:, -1])

    def cache(self, batch, length, dtype=torch.bfloat16):
        """[layers][keys, values], [B, G, length, D]."""
        size = (batch, self.shape.num_kv_heads, length, self.shape.head_dim)
        device = self.head.weight.device
        return [[torch.zeros(size, dtype=dtype, device=device) for _ in range(2)] for _ in self.layers]

    def decode(self, tokens, cache, context, position, dtype=torch.bfloat16):
        """Logits [B, V] of tokens [B] at `position`, for which the cache has room; context(position, 1)."""
        x = self.hidden(tokens[:, None], dtype,
                        lambda attention, x, number: attention.decode(x, context, *cache[number], position))
        return self.logits(x[:, 0])


def parameter_count(shape):
    """Without memory."""
    with torch.device("meta"):
        return sum(p.numel() for p in Decoder(shape).parameters())
