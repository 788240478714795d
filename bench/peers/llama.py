"""A Llama in plain PyTorch, with the shapes and names of common/models."""

import torch
import torch.nn.functional as F
from torch import nn


def angles(length, size, theta, like):
    """Cosines and sines [length, size / 2] of the rotary position embedding."""
    frequencies = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    turns = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return turns.cos().to(like), turns.sin().to(like)


def rotate(x, cosines, sines):
    """x [B, heads, T, size]: elements i and i + size / 2 are one pair."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosines - b * sines, a * sines + b * cosines), dim=-1)


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.heads = sizes["heads"]
        self.kv_heads = sizes["kv_heads"] or sizes["heads"]
        self.theta = sizes["rope_theta"]
        width = sizes["hidden"]
        kv_width = width // self.heads * self.kv_heads
        self.q = nn.Linear(width, width, bias=sizes["qkv_bias"])
        self.k = nn.Linear(width, kv_width, bias=sizes["qkv_bias"])
        self.v = nn.Linear(width, kv_width, bias=sizes["qkv_bias"])
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape

        def split(t, heads):
            return t.view(batch, length, heads, -1).transpose(1, 2)

        turns = angles(length, width // self.heads, self.theta, x)
        q = rotate(split(self.q(x), self.heads), *turns)
        k = rotate(split(self.k(x), self.kv_heads), *turns)
        y = F.scaled_dot_product_attention(
            q, k, split(self.v(x), self.kv_heads), is_causal=True, enable_gqa=True
        )
        return self.o(y.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.gate = nn.Linear(sizes["hidden"], sizes["feed_forward"], bias=False)
        self.up = nn.Linear(sizes["hidden"], sizes["feed_forward"], bias=False)
        self.down = nn.Linear(sizes["feed_forward"], sizes["hidden"], bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.attn_norm = nn.RMSNorm(sizes["hidden"], eps=sizes["norm_eps"])
        self.attn = Attention(sizes)
        self.mlp_norm = nn.RMSNorm(sizes["hidden"], eps=sizes["norm_eps"])
        self.mlp = SwiGLU(sizes)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """forward(tokens [B, T], targets [B, T]) -> mean loss."""

    def __init__(self, sizes):
        super().__init__()
        self.embed = nn.Embedding(sizes["vocab"], sizes["hidden"])
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes["layers"]))
        self.norm = nn.RMSNorm(sizes["hidden"], eps=sizes["norm_eps"])
        self.head = nn.Linear(sizes["hidden"], sizes["vocab"], bias=False)
        if sizes["tied"]:
            self.head.weight = self.embed.weight

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.layers:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
