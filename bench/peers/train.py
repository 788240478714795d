"""The same training as `shardbench compare`, done by PyTorch on Gloo: one JSON file.

python bench/peers/train.py --strategy ddp,fsdp2 --model gpt2 --untied --world 2 --batch 1 \
    --seq 128 --steps 10 --warmup 2 --threads 1 --out FILE

ddp is DistributedDataParallel (gradient_as_bucket_view), fsdp2 is fully_shard on every block and
the root, none is two processes that do not talk. Each strategy gets freshly spawned ranks. Token
batches are random: they cost what text costs.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import gpt2

# The defaults of common/train/config.h.
LR, BETAS, EPS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1


def wrap_ddp(model):
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def wrap_fsdp2(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


STRATEGIES = {"none": lambda model: model, "ddp": wrap_ddp, "fsdp2": wrap_fsdp2}


def make_optimizer(model):
    """Fused AdamW; matrices and embeddings decay, biases and norms do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, fused=True)


def memory_field(path, field):
    """Bytes of one kB line of a /proc file."""
    with open(path) as lines:
        for line in lines:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise KeyError(f"{path} has no line {field}")


def run_rank(rank, strategy, options, folder):
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=options.world
    )
    rss_start = memory_field("/proc/self/status", "VmRSS")
    model = gpt2.GPT2(options.sizes, tied=not options.untied)
    parameters = sum(p.numel() for p in model.parameters())
    model = STRATEGIES[strategy](model)
    optimizer = make_optimizer(model)
    generator = torch.Generator().manual_seed(1000 + rank)

    step_ms, losses = [], []
    for _ in range(options.warmup + options.steps):
        text = torch.randint(
            options.sizes.vocab, (options.batch, options.seq + 1), generator=generator
        )
        dist.barrier()
        start = time.perf_counter()
        loss = model(text[:, :-1], text[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step_ms.append((time.perf_counter() - start) * 1e3)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / options.world)

    dist.barrier()
    report = {
        "rank": rank,
        "step_ms": step_ms[options.warmup :],
        "losses": losses,
        "rss_start_bytes": rss_start,
        "rss_peak_bytes": memory_field("/proc/self/status", "VmHWM"),
        "pss_bytes": memory_field("/proc/self/smaps_rollup", "Pss"),
        "parameters": parameters,
    }
    with open(f"{folder}/rank{rank}.json", "w") as file:
        json.dump(report, file)
    dist.barrier()  # pages shared with a rank that has left would count wholly
    dist.destroy_process_group()


def run_strategy(strategy, options):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (strategy, options, folder), nprocs=options.world, join=True)
        ranks = []
        for rank in range(options.world):
            with open(f"{folder}/rank{rank}.json") as file:
                ranks.append(json.load(file))
    slowest = [max(times) for times in zip(*(r["step_ms"] for r in ranks))]
    return {
        "strategy": strategy,
        "step_ms": slowest,
        "median_ms": statistics.median(slowest),
        "min_ms": min(slowest),
        "rss_peak_bytes": max(r["rss_peak_bytes"] for r in ranks),
        "pss_bytes": max(r["pss_bytes"] for r in ranks),
        "losses": ranks[0]["losses"],
        "parameters": ranks[0]["parameters"],
        "per_rank": ranks,
    }


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", default="ddp,fsdp2", help="of " + ", ".join(STRATEGIES))
    parser.add_argument("--model", default="gpt2", choices=gpt2.PRESETS)
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1, help="sequences per rank")
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", help="file for the JSON; without it, stdout")
    options = parser.parse_args()
    options.strategies = options.strategy.split(",")
    for strategy in options.strategies:
        if strategy not in STRATEGIES:
            parser.error(f"unknown strategy {strategy}: one of {', '.join(STRATEGIES)}")
    if min(options.world, options.batch, options.seq, options.steps, options.threads) < 1:
        parser.error("--world, --batch, --seq, --steps and --threads are at least 1")
    options.sizes = gpt2.PRESETS[options.model]
    if options.seq > options.sizes.context:
        parser.error(f"--seq {options.seq} exceeds the context {options.sizes.context}")
    return options


def main():
    options = parse_arguments()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    results = [run_strategy(strategy, options) for strategy in options.strategies]
    document = {"torch_version": torch.__version__, "args": sys.argv[1:], "results": results}
    if options.out:
        with open(options.out, "w") as file:
            json.dump(document, file, indent=1)
    else:
        json.dump(document, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
