"""GPT-2 in plain PyTorch, with the shapes and names of common/models (no dropout)."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.heads = sizes["heads"]
        self.qkv = nn.Linear(sizes["hidden"], 3 * sizes["hidden"])
        self.proj = nn.Linear(sizes["hidden"], sizes["hidden"])

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.fc = nn.Linear(sizes["hidden"], 4 * sizes["hidden"])
        self.proj = nn.Linear(4 * sizes["hidden"], sizes["hidden"])

    def forward(self, x):
        return self.proj(F.gelu(self.fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.ln_1 = nn.LayerNorm(sizes["hidden"])
        self.attn = Attention(sizes)
        self.ln_2 = nn.LayerNorm(sizes["hidden"])
        self.mlp = MLP(sizes)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """forward(tokens [B, T], targets [B, T]) -> mean loss."""

    def __init__(self, sizes):
        super().__init__()
        self.wte = nn.Embedding(sizes["vocab"], sizes["hidden"])
        self.wpe = nn.Embedding(sizes["context"], sizes["hidden"])
        self.h = nn.ModuleList(Block(sizes) for _ in range(sizes["layers"]))
        self.ln_f = nn.LayerNorm(sizes["hidden"])
        self.lm_head = nn.Linear(sizes["hidden"], sizes["vocab"], bias=False)
        if sizes["tied"]:
            self.lm_head.weight = self.wte.weight

    def forward(self, tokens, targets):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
