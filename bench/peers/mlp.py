"""The MLP in plain PyTorch, with the shapes and names of common/models (no dropout)."""

import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return F.gelu(self.fc(x), approximate="tanh")


class MLP(nn.Module):
    """forward(tokens [B, T], targets [B, T]) -> mean loss."""

    def __init__(self, sizes):
        super().__init__()
        self.embed = nn.Embedding(sizes["vocab"], sizes["hidden"])
        self.layers = nn.ModuleList(Layer(sizes["hidden"]) for _ in range(sizes["layers"]))
        self.head = nn.Linear(sizes["hidden"], sizes["vocab"])

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), targets.flatten())
