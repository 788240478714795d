"""Reads files of named tensors (safetensors) piece by piece, never mapped: pages of a mapped file
would count as the process's memory."""

import json
import re
import struct

import torch

DTYPES = {"F32": torch.float32, "I32": torch.int32}


class TensorFile:
    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)
        (length,) = struct.unpack("<Q", self.file.read(8))
        self.header = json.loads(self.file.read(length))
        self.header.pop("__metadata__", None)
        self.begin = 8 + length

    def names(self):
        return list(self.header)

    def read(self, name):
        """The whole tensor, in memory of its own."""
        entry = self.header[name]
        tensor = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
        return self._fill(tensor, entry["data_offsets"][0])

    def read_slice(self, name, index):
        """`tensor[index]` along the first dimension."""
        entry = self.header[name]
        tensor = torch.empty(entry["shape"][1:], dtype=DTYPES[entry["dtype"]])
        offset = index * tensor.numel() * tensor.element_size()
        return self._fill(tensor, entry["data_offsets"][0] + offset)

    def _fill(self, tensor, offset):
        self.file.seek(self.begin + offset)
        view = memoryview(tensor.numpy()).cast("B")
        done = 0
        while done < len(view):
            count = self.file.readinto(view[done:])
            if not count:
                raise EOFError(f"{self.file.name} is too short")
            done += count
        return tensor


def load_weights(model, path):
    """Fills every parameter of the whole model; names and shapes must be the file's."""
    file = TensorFile(path)
    parameters = dict(model.named_parameters())
    parts = parts_of(file.names())
    if set(parameters) != set(parts):
        raise ValueError(f"other parameters: {sorted(set(parameters) ^ set(parts))}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.cat([file.read(part) for part in parts[name]]))


def parts_of(names):
    """The tensors of each parameter: a head that the file has in parts (head.0.weight, ...) is one
    parameter here."""
    parts = {}
    for name in names:
        parts.setdefault(re.sub(r"head\.\d+\.weight$", "head.weight", name), []).append(name)
    return parts
