"""GPT-2 in plain PyTorch, with the shapes, names and start of common/models (no dropout)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Sizes:
    layers: int
    heads: int
    hidden: int
    vocab: int
    context: int


PRESETS = {
    "gpt2-nano": Sizes(6, 6, 384, 256, 256),
    "gpt2": Sizes(12, 12, 768, 50257, 1024),
    "gpt2-medium": Sizes(24, 16, 1024, 50257, 1024),
    "gpt2-large": Sizes(36, 20, 1280, 50257, 1024),
    "gpt2-xl": Sizes(48, 25, 1600, 50257, 1024),
}


class Attention(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.heads = sizes.heads
        self.qkv = nn.Linear(sizes.hidden, 3 * sizes.hidden)
        self.proj = nn.Linear(sizes.hidden, sizes.hidden)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.fc = nn.Linear(sizes.hidden, 4 * sizes.hidden)
        self.proj = nn.Linear(4 * sizes.hidden, sizes.hidden)

    def forward(self, x):
        return self.proj(F.gelu(self.fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.ln_1 = nn.LayerNorm(sizes.hidden)
        self.attn = Attention(sizes)
        self.ln_2 = nn.LayerNorm(sizes.hidden)
        self.mlp = MLP(sizes)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """forward(tokens [B, T], targets [B, T]) -> mean loss."""

    def __init__(self, sizes: Sizes, tied: bool):
        super().__init__()
        self.sizes = sizes
        self.wte = nn.Embedding(sizes.vocab, sizes.hidden)
        self.wpe = nn.Embedding(sizes.context, sizes.hidden)
        self.h = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.hidden)
        self.lm_head = nn.Linear(sizes.hidden, sizes.vocab, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight
        self.initialize()

    @torch.no_grad()
    def initialize(self):
        residual = 0.02 / math.sqrt(2 * self.sizes.layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                is_residual = name.endswith("proj.weight")
                nn.init.normal_(parameter, std=residual if is_residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        positions = torch.arange(tokens.shape[1])
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
